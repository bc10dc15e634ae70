"""Makes an interceptor of each guard, and decides what follows if it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse.errors import PluginFailed
from enginehouse.runtime import PluginId, plugin_errors, wrong_result
from enginehouse_kit.guards import Guard, GuardAnswer, GuardRequest
from enginehouse_kit.interceptors import (
    AnswerFilter,
    Change,
    Event,
    InterceptedRequest,
    Interceptor,
    InterceptorAdapter,
    Passed,
    Refuse,
    Whole,
)

_SPELLED: Final = ("logprobs", "token_ids", "tokens", "completion_probabilities")
"""The fields that have a text once more: of a choice of OpenAI's and vLLM's, and of llama-server's own completions."""

_END_TEXTS: Final = frozenset({"tool", "thinking", "refusal", "finish"})
"""Events that must not overtake the text before them. In other dialects, they end it: what comes behind is another."""


class ActiveGuard:
    """The ``guard`` of ``plugin``. ``passes``: texts pass if it fails; the gateway does that for requests and answers.

    Each method raises ``PluginFailed`` for a result that guards must not return.
    """

    def __init__(self, plugin: PluginId, guard: Guard, *, passes: bool) -> None:
        self._plugin = plugin
        self._guard = guard
        self._passes = passes

    @property
    def look_back(self) -> int:
        """The characters at the end of a text that are held back."""
        return max(0, self._guard.look_back)

    def has(self, method: str) -> bool:
        """Whether the guard has this method itself."""
        return getattr(type(self._guard), method) is not getattr(Guard, method)

    async def before(self, request: InterceptedRequest) -> Refuse | Change | None:
        """What it says of a request."""
        return self._decided(await self._guard.before(_seen(request), request.caller))

    async def after(self, request: InterceptedRequest, status: int, body: bytes) -> Refuse | Change | None:
        """What it says of a whole answer."""
        return self._decided(await self._guard.after(GuardAnswer(_seen(request), request.caller, status, body)))

    def on_text(self, text: str) -> str | Refuse:
        """What it makes of a text."""
        try:
            with plugin_errors(self._plugin):
                said: object = self._guard.on_text(text)
                if said is None:
                    return text
                if isinstance(said, (str, Refuse)):
                    return said
                raise wrong_result(self._plugin, f"must return None, a text or Refuse, got {type(said).__name__}")
        except PluginFailed:
            if not self._passes:
                raise
            return text

    def _decided(self, said: object) -> Refuse | Change | None:
        if said is None or isinstance(said, (Refuse, Change)):
            return said
        raise wrong_result(self._plugin, f"must return None, Refuse or Change, got {type(said).__name__}")


def _seen(request: InterceptedRequest) -> GuardRequest:
    return GuardRequest(request.path, request.model, request.headers, request.body)


class GuardedText:
    """Holds back the end of the text, which the guard sees again together with what follows."""

    def __init__(self, guard: ActiveGuard) -> None:
        self._guard = guard
        self._held = ""

    def passed(self, text: str, *, last: bool) -> str | Refuse:
        """What the client gets of ``text`` and of what was held before. The ``last`` text leaves nothing held."""
        whole = self._held + text
        if not whole:
            return ""
        said = self._guard.on_text(whole)
        if isinstance(said, Refuse):
            return said
        keep = 0 if last else min(len(said), self._guard.look_back)
        self._held = said[len(said) - keep :]
        return said[: len(said) - keep]


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
        if event.kind in _END_TEXTS and event.choice in self._texts:
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
    data, choices = event.data, event.data.get("choices")
    if _spells(data):
        data = _without_spelling(data)
    if isinstance(choices, list) and any(_spells(each) for each in choices):
        data = {**data, "choices": [_without_spelling(each) if _spells(each) else each for each in choices]}
    return event if data is event.data else msgspec.structs.replace(event, data=data)


def _without_spelling(spelt: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spelt.items() if name not in _SPELLED}


def _spells(value: object) -> bool:
    return isinstance(value, dict) and any(value.get(name) is not None for name in _SPELLED)


class GuardAdapter(InterceptorAdapter):
    """Makes interceptors of guards."""

    kind = "guard"
    table = "guards"

    def adapt(self, plugin: PluginId, made: Any, *, passes: bool) -> Interceptor:
        guard = ActiveGuard(plugin, made, passes=passes)
        return AskedGuard(guard) if guard.has("before") else WatchingGuard(guard)


class WatchingGuard(Interceptor):
    """A guard that sees no requests. Answers that it does not see either have no filter."""

    def __init__(self, guard: ActiveGuard) -> None:
        self._guard = guard
        self._filter: type[GuardedAnswer] | type[GuardedStream] | None = None
        if guard.has("on_text"):
            self._filter = GuardedStreamOrAnswer if guard.has("after") else GuardedStream
        elif guard.has("after"):
            self._filter = GuardedAnswer

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        return None if self._filter is None else self._filter(self._guard, request)


class AskedGuard(WatchingGuard):
    """A guard that sees requests."""

    async def before(self, request: InterceptedRequest) -> Refuse | Change | None:
        return await self._guard.before(request)
