"""One answer, at which a guard looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse_guards.active_guard import ActiveGuard
from enginehouse_guards.texts import GuardedText
from enginehouse_kit.interceptors import AnswerFilter, Event, InterceptedRequest, Passed, Refuse, Whole

_SPELLED: Final = ("logprobs", "token_ids")
"""The fields of a choice that have its text once more: of OpenAI, and of vLLM."""


class GuardedAnswer(AnswerFilter):
    """Has a guard decide about a whole answer."""

    def __init__(self, guard: ActiveGuard, request: InterceptedRequest) -> None:
        self._guard = guard
        self._request = request
        self._status = 0

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status

    async def whole(self, body: bytes) -> Whole:
        said = await self._guard.after(self._request, self._status, body)
        return said if said is None or isinstance(said, Refuse) else said.body


class GuardedStream(AnswerFilter):
    """Has a guard look at the texts of a stream.

    Tokens spell a text as the engine wrote it, and ahead of what the guard still holds, so they do not pass.
    """

    def __init__(self, guard: ActiveGuard, request: InterceptedRequest) -> None:
        self._guard = guard
        self._texts: dict[int, GuardedText] = {}

    def event(self, event: Event) -> Passed:
        event = _unspelled(event)
        if event.kind == "text":
            text = self._texts.get(event.choice)
            if text is None:
                text = self._texts[event.choice] = GuardedText(self._guard)
            passed = text.passed(event.text, last=False)
            if isinstance(passed, Refuse):
                return passed
            return event if passed == event.text else msgspec.structs.replace(event, text=passed)
        if event.kind == "finish" and event.choice in self._texts:
            rest = self._rest(event.choice)
            return rest if isinstance(rest, Refuse) else (*rest, event)
        return event

    def end(self) -> Passed:
        events: list[Event] = []
        for choice in list(self._texts):
            rest = self._rest(choice)
            if isinstance(rest, Refuse):
                return rest
            events += rest
        return events

    def _rest(self, choice: int) -> Sequence[Event] | Refuse:
        """The text of a choice that is still held."""
        text = self._texts.pop(choice).passed("", last=True)
        if isinstance(text, Refuse):
            return text
        return (Event("text", choice, text),) if text else ()


class GuardedStreamOrAnswer(GuardedAnswer, GuardedStream):
    """Has a guard look at the texts of a stream, or decide about a whole answer."""

    def __init__(self, guard: ActiveGuard, request: InterceptedRequest) -> None:
        GuardedAnswer.__init__(self, guard, request)
        GuardedStream.__init__(self, guard, request)


def _unspelled(event: Event) -> Event:
    """The event without the tokens of its texts."""
    choices = event.data.get("choices")
    if not isinstance(choices, list) or not any(_spells(each) for each in choices):
        return event
    without: list[Any] = [
        {name: value for name, value in each.items() if name not in _SPELLED} if _spells(each) else each
        for each in choices
    ]
    return msgspec.structs.replace(event, data={**event.data, "choices": without})


def _spells(choice: object) -> bool:
    return isinstance(choice, dict) and any(choice.get(name) is not None for name in _SPELLED)
