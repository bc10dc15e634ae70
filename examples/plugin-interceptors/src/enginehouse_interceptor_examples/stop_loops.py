"""The interceptor ``stop_loops``."""

from __future__ import annotations

import msgspec

from enginehouse_kit.interceptors import AnswerFilter, Event, InterceptedRequest, Interceptor, Refuse

_PROBE = 24
"""Characters at the end of a text whose last earlier place tells how long a repeated piece is."""


class StopLoops(Interceptor):
    """Ends streams that repeat themselves for ever."""

    class Config(msgspec.Struct, frozen=True):
        """``repeats``: how often a piece is repeated. ``least``: the characters that all of them have at least."""

        repeats: int = 10
        least: int = 1000

    def __init__(self, config: Config) -> None:
        self._config = config

    def answer(self, request: InterceptedRequest) -> AnswerFilter:
        return LoopFilter(self._config)


class LoopFilter(AnswerFilter):
    """Looks at each choice's text and its thinking, whenever as much as a probe has come."""

    def __init__(self, config: StopLoops.Config) -> None:
        self._config = config
        self._most = 4 * config.least
        self._texts: dict[tuple[str, int], tuple[str, int]] = {}

    def event(self, event: Event) -> Event | Refuse:
        if event.kind not in ("text", "thinking"):
            return event
        text, unseen = self._texts.get((event.kind, event.choice), ("", 0))
        text, unseen = (text + event.text)[-self._most :], unseen + len(event.text)
        if unseen >= _PROBE:
            unseen = 0
            if self._loops(text):
                return Refuse(508, "runaway_loop", "The model repeats itself, so its answer was ended")
        self._texts[event.kind, event.choice] = text, unseen
        return event

    def _loops(self, text: str) -> bool:
        last = len(text) - _PROBE
        period = last - text.rfind(text[last:], 0, len(text) - 1)
        size = max(self._config.least, self._config.repeats * period)
        return last >= 0 and period <= last and size <= len(text) and text[-size:-period] == text[-size + period :]
