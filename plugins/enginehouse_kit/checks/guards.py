"""The conformance check of guards."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from enginehouse_kit.expect import expect
from enginehouse_kit.guards import Guard, GuardAnswer, GuardRequest
from enginehouse_kit.interceptors import Change, Refuse

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
    asyncio.run(_check(it))
    for text in _TEXTS:
        said: Any = it.on_text(text)
        expect(
            said is None or isinstance(said, (str, Refuse)), f"on_text must return None, a text or Refuse, got {said!r}"
        )
        if isinstance(said, Refuse):
            check_refusal("on_text", said)
        elif isinstance(said, str):
            again = it.on_text(said)
            kept = again is None or again == said
            expect(kept, f"on_text gets the end of its text again, so it must leave what it returned, got {again!r}")


async def _check(it: Guard) -> None:
    for body in (*map(encoded, BODIES), b"", b"{", b"\xff"):
        for caller in (None, "team-a"):
            request = GuardRequest("/v1/chat/completions", "m", {"user-agent": "check"}, body)
            _check_said("before", await it.before(request, caller))
    for body in BODIES:
        plain, other = [await it.before(_request(each), None) for each in (encoded(body), escaped(body))]
        why = "before must decide alike about a text that JSON writes with escapes: decode the body, or use texts()"
        expect(type(plain) is type(other), f"{why}, got {plain!r} and {other!r}")
    request = _request(encoded(BODIES[0]))
    for body in (*map(encoded, ANSWERS), b"", b"plain text"):
        _check_said("after", await it.after(GuardAnswer(request, None, 200, body)))


def _check_said(method: str, said: Any) -> None:
    expect(
        said is None or isinstance(said, (Refuse, Change)), f"{method} must return None, Refuse or Change, got {said!r}"
    )
    if isinstance(said, Refuse):
        check_refusal(method, said)
    elif isinstance(said, Change):
        check_change(method, said)


def check_change(method: str, said: Change) -> None:
    """Check that a changed body can be sent."""
    expect(isinstance(said.body, (bytes, dict)), f"{method} must change the body to bytes or a dict, got {said.body!r}")


def check_refusal(method: str, said: Refuse) -> None:
    """Check that a refusal can be sent."""
    expect(400 <= said.status <= 599, f"{method} must refuse with a status from 400 to 599, got {said.status!r}")
    expect(bool(said.code) and bool(said.message), f"{method} must refuse with a code and a message, got {said!r}")


def _request(body: bytes) -> GuardRequest:
    return GuardRequest("/v1/chat/completions", "m", {}, body)


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
