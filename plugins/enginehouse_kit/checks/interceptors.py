"""The conformance checks of interceptors and guards."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from enginehouse_kit.expect import expect
from enginehouse_kit.guards import Guard, GuardAnswer, GuardRequest
from enginehouse_kit.interceptors import (
    Answer,
    AnswerFilter,
    Change,
    Event,
    InterceptedRequest,
    Interceptor,
    Join,
    Refuse,
)

_CHAT = "/v1/chat/completions"
_HEAD = {"content-type": "application/json", "x-request-id": "r1"}
_STREAM_HEAD = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "r1"}
_CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a'}}


def _event(kind: Any, text: str, delta: dict[str, Any], finish: str | None = None) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Event(kind, 0, text, {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


_EVENTS = (
    _event("other", "", {"role": "assistant", "content": ""}),
    _event("thinking", "Hm", {"reasoning_content": "Hm"}),
    _event("text", "Hello", {"content": "Hello"}),
    _event("text", "ä€😀", {"content": "ä€😀"}),
    *(_event("text", "again ", {"content": "again "}) for _ in range(200)),
    _event("refusal", "No", {"refusal": "No"}),
    _event("tool", '{"a', {"tool_calls": [_CALL]}),
    Event("text", 1, "Hi", {"choices": [{"index": 1, "text": "Hi", "finish_reason": None}]}),
    _event("finish", "", {}, "stop"),
    Event("usage", 0, "", {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
)


def check_interceptor(factory: Callable[[], Interceptor]) -> None:
    """Check that an interceptor takes requests and answers of every form, and returns what the gateway understands.

    What it reaches over a network must be there, or a fake. Call it in a synchronous test.
    """
    it = factory()

    async def ask(body: bytes, caller: str | None) -> Any:
        return await it.before(InterceptedRequest(_CHAT, "openai", "m", _HEAD, body, caller))

    asyncio.run(_check_before(ask, Refuse, Change, Answer, Join))
    for path, body in ((_CHAT, {"stream": True}), ("/v1/completions", {}), ("/v1/embeddings", {})):
        _check_filters(it, InterceptedRequest(path, "openai", "m", _HEAD, encoded({"model": "m", **body})))


async def _check_before(ask: Callable[[bytes, str | None], Awaitable[Any]], *allowed: type) -> None:
    """Check that ``before``, which ``ask`` calls with a body and a caller, decides about requests of every form."""
    for body in (*map(encoded, BODIES), b"", b"{", b"\xff"):
        for caller in (None, "team-a"):
            _check_said("before", await ask(body, caller), *allowed)
    for body in BODIES:
        plain, other, again = [await ask(each, None) for each in (encoded(body), escaped(body), encoded(body))]
        why = (
            "before must decide alike about a text that JSON writes with escapes: decode it, or use the request's texts"
        )
        knows = isinstance(plain, (Answer, Join)) or isinstance(other, (Answer, Join))  # it remembers requests
        counts = type(plain) is not type(again)
        expect(knows or counts or type(plain) is type(other), f"{why}, got {plain!r} and {other!r}")


def _check_said(method: str, said: Any, *allowed: type) -> None:
    """Check that ``method`` has returned nothing, or one of the types, and that this can be sent."""
    named = " or ".join(["None", *(each.__name__ for each in allowed)])
    expect(said is None or isinstance(said, allowed), f"{method} must return {named}, got {said!r}")
    if isinstance(said, Refuse):
        expect(400 <= said.status <= 599, f"{method} must refuse with a status from 400 to 599, got {said.status!r}")
        expect(bool(said.code) and bool(said.message), f"{method} must refuse with a code and a message, got {said!r}")
    elif isinstance(said, Change):
        body = said.body
        expect(isinstance(body, (bytes, dict)), f"{method} must change the body to bytes or a dict, got {body!r}")
        _check_json(method, body)
    elif isinstance(said, Answer):
        expect(200 <= said.status <= 599, f"{method} must answer with a status from 200 to 599, got {said.status!r}")
        expect(isinstance(said.body, (bytes, dict)), f"{method} must answer with bytes or a dict, got {said.body!r}")
        _check_json(method, said.body)
    elif isinstance(said, Join):
        expect(isinstance(said.request_id, str), f"{method} must join the id of a request, got {said.request_id!r}")
    else:
        _check_json(method, said)


def _check_json(method: str, said: Any) -> None:
    if not isinstance(said, dict):
        return
    try:
        json.dumps(said)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{method} must return what is for JSON: {error}") from None


def _check_filters(it: Interceptor, request: InterceptedRequest) -> None:
    made = [_filter(it, request) for _ in range(4)]
    seen = [each for each in made if each is not None]
    expect(len({id(each) for each in seen}) == len(seen), "answer must return a new filter for each request")
    if len(seen) < len(made):
        return
    stream, whole, error, left = seen
    _check_stream(stream)
    _check_head(whole.head(200, _HEAD))
    for body in (*map(encoded, ANSWERS), b"", b"plain text"):
        _check_said("whole", asyncio.run(_result(whole.whole(body))), bytes, dict, Refuse)
    _check_head(error.head(503, _HEAD))
    error.broken({"message": "No", "type": "server_error", "code": "overloaded"})
    left.broken({"message": "The client left", "code": "client_left"})


async def _result(said: Any) -> Any:
    return await said if isinstance(said, Awaitable) else said


def _filter(it: Interceptor, request: InterceptedRequest) -> AnswerFilter | None:
    made: Any = it.answer(request)
    expect(made is None or isinstance(made, AnswerFilter), f"answer must return an AnswerFilter or None, got {made!r}")
    filter: AnswerFilter | None = made
    return filter


def _check_stream(filter: AnswerFilter) -> None:
    _check_head(filter.head(200, _STREAM_HEAD))
    for event in _EVENTS:
        data = copy.deepcopy(event.data)
        said = filter.event(event)
        if said is not event:
            _check_passed("event", said)
        if isinstance(said, Refuse):
            filter.broken({"message": said.message, "code": said.code})
            return
        expect(event.data == data, "event must leave the data of an event as they are: return another event")
        _check_passed("silent", filter.silent(0.1))
    _check_passed("end", filter.end())


def _check_passed(method: str, said: Any) -> None:
    if isinstance(said, Refuse):
        _check_said(method, said, Refuse)
        return
    several = isinstance(said, Sequence) and not isinstance(said, (str, bytes))
    events = said if several else () if said is None else (said,)
    for each in events:
        expect(isinstance(each, Event), f"{method} must return an Event, events, Refuse or None, got {said!r}")
        expect(isinstance(each.text, str), f"{method} must return events with texts, got {each!r}")
        expect(bool(each.data) or each.kind in ("text", "thinking", "refusal", "finish"), f"{each!r} needs data")
        _check_json(method, each.data)


def _check_head(said: Any) -> None:
    expect(said is None or isinstance(said, Mapping), f"head must return headers or None, got {said!r}")
    for name, value in (said or {}).items():
        texts = isinstance(name, str) and (value is None or isinstance(value, str))
        expect(
            texts and not set(name + (value or "")) & {"\r", "\n"}, f"head must return texts on one line, got {said!r}"
        )


BODIES: tuple[Any, ...] = (
    {"model": "m", "messages": [{"role": "user", "content": "Hello"}]},
    {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "stream": True},
    {"model": "m", "messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
    {"model": "m", "prompt": ["Hello", "there"]},
    {"model": "m", "input": [1, 2, 3]},
    {"model": "m", "messages": [{"role": "user", "content": "Write to ann@example.org"}]},
    {"model": "m"},
    [],
    "text",
)
ANSWERS: tuple[Any, ...] = (
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]},
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}}]},
    {"choices": [{"index": 0, "text": "Hello"}]},
    {"data": [{"embedding": [0.5]}]},
    {},
    [],
)
_TEXTS = ("", "H", "Hello, world", "ä€😀", " " * 10_000, "ann@example.org")


def check_guard(factory: Callable[[], Guard]) -> None:
    """Check that a guard takes requests and answers of every form, and returns what the gateway understands.

    What it reaches over a network must be there, or a fake. Call it in a synchronous test.
    """
    it = factory()
    expect(isinstance(it.look_back, int) and it.look_back >= 0, f"look_back must be 0 or more, got {it.look_back!r}")
    asyncio.run(_check_guard(it))
    for text in _TEXTS:
        said: Any = it.on_text(text)
        _check_said("on_text", said, str, Refuse)
        if isinstance(said, str):
            again = it.on_text(said)
            kept = again is None or again == said
            expect(kept, f"on_text gets the end of its text again, so it must leave what it returned, got {again!r}")


async def _check_guard(it: Guard) -> None:
    def request(body: bytes) -> GuardRequest:
        return GuardRequest(_CHAT, "m", {"user-agent": "check"}, body)

    async def ask(body: bytes, caller: str | None) -> Any:
        return await it.before(request(body), caller)

    await _check_before(ask, Refuse, Change)
    for body in (*map(encoded, ANSWERS), b"", b"plain text"):
        said = await it.after(GuardAnswer(request(encoded(BODIES[0])), None, 200, body))
        _check_said("after", said, Refuse, Change)


def escaped(value: Any) -> bytes:
    """``value`` with the letters of all its texts, but for those of names, written as escapes."""
    marked = json.dumps(_marked(value))
    return re.sub("\ue000(.)", lambda found: f"\\u{ord(found[1]):04x}", marked.replace("\\ue000", "\ue000")).encode()


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _marked(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return re.sub(r"([\w@])", "\ue000\\1", value) if isinstance(value, str) else value


def encoded(value: Any) -> bytes:
    """``value`` as JSON."""
    return json.dumps(value).encode()
