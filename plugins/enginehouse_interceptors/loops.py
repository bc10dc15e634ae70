"""The interceptor ``loops``."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from enginehouse_kit.interceptors import AnswerFilter, Event, InterceptedRequest, Interceptor, Refuse

_PROBE = 24
"""Characters at the end of a text; the distance to their last earlier place is the length of a repeated piece."""
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]+")
"""Base64 and the like has long runs of one character that mean something."""


class Loops(Interceptor):
    """Ends streams whose text or thinking repeats a piece for ever, so that their engines are free."""

    class Config(msgspec.Struct, frozen=True):
        """A loop has ``repeats`` times the same piece, and ``least`` characters."""

        repeats: Annotated[int, msgspec.Meta(ge=2, description="how often a piece is repeated")] = 10
        least: Annotated[
            int, msgspec.Meta(ge=100, le=100_000, description="the least number of characters of a loop")
        ] = 2000

    def __init__(self, config: Config) -> None:
        self._config = config

    def answer(self, request: InterceptedRequest) -> AnswerFilter:
        return LoopFilter(self._config)


class LoopFilter(AnswerFilter):
    """Looks at the end of each choice's text and thinking, whenever a quarter of ``least`` has come."""

    def __init__(self, config: Loops.Config) -> None:
        self._config = config
        self._most = 4 * config.least
        self._texts: dict[tuple[str, int], tuple[str, int]] = {}

    def event(self, event: Event) -> Event | Refuse:
        if event.kind not in ("text", "thinking"):
            return event
        text, unseen = self._texts.get((event.kind, event.choice), ("", 0))
        text, unseen = (text + event.text)[-self._most :], unseen + len(event.text)
        if unseen >= self._config.least // 4:
            unseen = 0
            if self._loops(text):
                return Refuse(508, "runaway_loop", "The model repeats itself endlessly, so its answer was ended")
        self._texts[event.kind, event.choice] = text, unseen
        return event

    def _loops(self, text: str) -> bool:
        last = len(text) - _PROBE
        if last < 0:
            return False
        period = last - text.rfind(text[last:], 0, len(text) - 1)
        size = max(self._config.least, self._config.repeats * period)
        if period > last or size > len(text) or text[-size:-period] != text[-size + period :]:
            return False
        return _ENCODED.fullmatch(text, len(text) - size) is None
