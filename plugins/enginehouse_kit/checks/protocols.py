"""The conformance check of protocols: requests of every quality, and answers as engines give them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from enginehouse import InvalidRequest, RequestError
from enginehouse.drivers import ThinkingFields
from enginehouse.errors import ModelNotFound
from enginehouse_kit.expect import expect, within
from enginehouse_kit.protocols import Forwarded, Native, Protocol, ProtocolRequest, Translation

_ANSWER_S = 10.0
ENGINE_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
_PART = re.compile(r"\{[^}]*\}")
"""A part of a path that differs from request to request."""
_USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
_ASKED = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "prompt": "hi",
    "input": "hi",
    "max_tokens": 4,
}
"""Has what chats, prompts and embeddings ask for, by the names that most protocols have for it."""
_ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ho"}, "finish_reason": "stop"}],
        "usage": _USAGE,
    },
    "/v1/completions": {"choices": [{"index": 0, "text": "ho", "finish_reason": "length"}], "usage": _USAGE},
    "/v1/embeddings": {"data": [{"index": 0, "embedding": [0.5, 0.25]}], "usage": _USAGE},
}
_EVENTS: tuple[dict[str, Any], ...] = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "h"}}]},
    {"choices": [{"index": 0, "delta": {"content": "o"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": _USAGE},
)


def check_protocol(factory: Callable[[], Protocol]) -> None:
    """Check that requests become OpenAI's or are refused, and that answers and errors come back as bytes."""
    it = factory()
    expect(bool(it.name) and it.name.isprintable(), f"name must be a word for a header, got {it.name!r}")
    for path in (*it.paths, *(path for _, path in it.pages), *it.other_paths):
        expect(path.startswith("/"), f"a path must begin with a slash, got {path!r}")
    error = ModelNotFound("m")
    expect(b"not found" in it.error(error.status, error.envelope()), "error must tell the message")
    for path in it.paths:
        for body in _bodies():
            _check_request(it, _PART.sub("m", path), body)
            _check_native(it, _PART.sub("m", path), body)


def _bodies() -> Iterator[bytes]:
    yield from (b"", b"{", b"[]", b"null", b'{"model": 1}', b'{"model": "m"}', b"\xff")
    for stream in (False, True):
        yield json.dumps({**_ASKED, "stream": stream}).encode()
    for field in _ASKED:
        yield json.dumps({**_ASKED, field: {"unexpected": None}}).encode()


def _check_request(it: Protocol, path: str, body: bytes) -> None:
    try:
        made = asyncio.run(_translated(it, ProtocolRequest(path, body, lambda model: model == "m")))
    except InvalidRequest:
        return
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"translate must raise InvalidRequest for {body!r}, not {error!r}") from error
    if isinstance(made, Forwarded):
        expect(made.path.startswith("/"), f"path must be one of an engine's, got {made.path!r}")
        _expect_bytes("body", made.body)
        return
    expect(isinstance(made, Translation), f"translate must return a Translation or Forwarded, got {made!r}")
    expect(made.path in ENGINE_PATHS, f"path must be one that every engine has, got {made.path!r}")
    _expect_bytes("body_for", made.body_for(ThinkingFields()))
    asked = json.loads(made.body)
    expect(asked.get("model") == "m", f"body must name the model, got {asked!r}")
    if asked.get("stream"):
        _check_stream(made)
    else:
        _expect_bytes("answer", made.answer(_ANSWERS[made.path]))


async def _translated(it: Protocol, request: ProtocolRequest) -> Any:
    return await within(_ANSWER_S, "translate", it.translate(request))


def _check_native(it: Protocol, path: str, body: bytes) -> None:
    try:
        asked = ProtocolRequest(path, body, lambda model: model == "m", backends=("a",))
        made = asyncio.run(within(_ANSWER_S, "native", it.native(asked)))
    except RequestError:
        return
    expect(isinstance(made, Native), f"native must return a Native, got {made!r}")


def _check_stream(made: Translation) -> None:
    told = b""
    for event in _EVENTS:
        told += _expect_bytes("event", made.event(event))
    told += _expect_bytes("end", made.end())
    expect(bool(told), "a stream must not be empty")
    error = ModelNotFound("m")
    expect(
        bool(_expect_bytes("error_event", made.error_event(error.status, error.envelope()))), "an error must be told"
    )


def _expect_bytes(name: str, made: object) -> bytes:
    if not isinstance(made, bytes):
        raise AssertionError(f"{name} must return bytes, got {made!r}")
    return made
