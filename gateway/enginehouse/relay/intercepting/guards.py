"""Guards as interceptors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.foreign import shown
from enginehouse.interfaces.guards import Guard, GuardAnswer, GuardRequest
from enginehouse.interfaces.interceptors import (
    AnswerFilter,
    Change,
    Event,
    InterceptedRequest,
    Interceptor,
    Passed,
    Refuse,
)
from enginehouse.relay.intercepting.in_force import InForce
from enginehouse.telemetry.plugin_failures import wrong_result

_SPELLED: Final = ("logprobs", "token_ids")
"""The fields of a choice that have its text once more: of OpenAI, and of vLLM."""
_ALLOWED: Final = "None, Refuse or Change"


class GuardInterceptor(Interceptor):
    """A ``guard`` as an interceptor."""

    def __init__(self, guard: Guard, terms: InForce) -> None:
        self._guard = guard
        self._terms = terms
        self.asks = _overrides(guard, "before")
        self.watches = _overrides(guard, "after") or _overrides(guard, "on_text")

    async def before(self, request: InterceptedRequest) -> Refuse | Change | None:
        said = await self._guard.before(_seen(request), request.caller)
        if said is None or isinstance(said, (Refuse, Change)):
            return said
        raise wrong_result(self._terms.plugin, f"must return {_ALLOWED}, got {shown(said)}")

    def answer(self, request: InterceptedRequest) -> AnswerFilter | None:
        if _overrides(self._guard, "on_text"):
            return GuardedStream(self._guard, self._terms, request)
        return GuardedAnswer(self._guard, self._terms, request)


class GuardedAnswer(AnswerFilter):
    """Has a guard decide about one whole answer."""

    def __init__(self, guard: Guard, terms: InForce, request: InterceptedRequest) -> None:
        self._guard = guard
        self._terms = terms
        self._request = request
        self._status = 0
        self.decides = _overrides(guard, "after")

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status

    async def decide(self, body: bytes) -> bytes:
        """The body that the client gets. Raises ``RequestError``."""
        answer = GuardAnswer(_seen(self._request), self._request.caller, self._status, body)
        changed = await self._terms.ask(self._guard.after, lambda said: self._terms.changed(said, _ALLOWED), answer)
        return body if changed is None else changed


class GuardedStream(GuardedAnswer):
    """Has a guard look at the texts of one answer.

    Tokens spell a text as the engine wrote it, and ahead of what the guard still holds, so they do not pass.
    """

    def __init__(self, guard: Guard, terms: InForce, request: InterceptedRequest) -> None:
        super().__init__(guard, terms, request)
        self._texts: dict[int, GuardedText] = {}

    def event(self, event: Event) -> Passed:
        event = _unspelled(event)
        if event.kind == "text":
            text = self._texts.get(event.choice)
            if text is None:
                text = self._texts[event.choice] = GuardedText(self._guard, self._terms)
            passed = text.passed(event.text, last=False)
            return event if passed == event.text else msgspec.structs.replace(event, text=passed)
        if event.kind == "finish" and event.choice in self._texts:
            return (*self._rest(event.choice), event)
        return event

    def end(self) -> Passed:
        return [event for choice in list(self._texts) for event in self._rest(choice)]

    def _rest(self, choice: int) -> Sequence[Event]:
        """The text of a choice that is still held."""
        text = self._texts.pop(choice).passed("", last=True)
        return (Event("text", choice, text),) if text else ()


class GuardedText:
    """One text of one stream on its way through one guard, which holds back its end."""

    def __init__(self, guard: Guard, terms: InForce) -> None:
        self._guard = guard
        self._terms = terms
        self._held = ""

    def passed(self, text: str, *, last: bool) -> str:
        """What goes on when ``text`` has come. Raises ``RequestError``. After the ``last`` text, nothing is held."""
        whole = self._held + text
        if not whole:
            return ""
        said = self._say(whole)
        keep = 0 if last else min(len(said), max(0, self._guard.look_back))
        self._held = said[len(said) - keep :]
        return said[: len(said) - keep]

    def _say(self, text: str) -> str:
        terms = self._terms
        try:
            said: object = self._guard.on_text(text)
        except BaseException as error:
            failure = terms.failure(error)
            if failure is None:
                return text
            raise failure from error
        if isinstance(said, Refuse):
            raise terms.refusal(said)
        if said is not None and not isinstance(said, str):
            problem: RequestError = wrong_result(terms.plugin, f"must return None, a text or Refuse, got {shown(said)}")
            if terms.passes:
                return text
            raise problem
        return text if said is None else said


def _overrides(guard: Guard, method: str) -> bool:
    """Whether the guard has this method itself."""
    return getattr(type(guard), method) is not getattr(Guard, method)


def _seen(request: InterceptedRequest) -> GuardRequest:
    return GuardRequest(request.path, request.model, request.headers, request.body)


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
