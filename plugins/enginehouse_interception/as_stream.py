"""A whole answer of a chat or a completion as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

_CHUNKS: Final = {"chat.completion": "chat.completion.chunk"}
_NOT_IN_EVENTS: Final = frozenset({"choices", "usage", "object"})


class _Asked(msgspec.Struct):
    stream: bool = False
    stream_options: dict[str, Any] | None = None


def asks_for_stream(body: bytes) -> bool:
    """Whether a request asks for a stream."""
    return _read(body).stream


def as_stream(answer: dict[str, Any], body: bytes) -> bytes | None:
    """The events of ``answer``, with its usage if the request ``body`` asks for that. ``None`` if it has no choices."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        return None
    options = _read(body).stream_options or {}
    events = [*_events(answer, choices, usage=options.get("include_usage") is True)]
    return b"".join([b"data: %s\n\n" % msgspec.json.encode(each) for each in events]) + b"data: [DONE]\n\n"


def _events(answer: dict[str, Any], choices: list[dict[str, Any]], *, usage: bool) -> Iterator[dict[str, Any]]:
    kind = answer.get("object")
    shared = {name: value for name, value in answer.items() if name not in _NOT_IN_EVENTS}
    if isinstance(kind, str):
        shared["object"] = _CHUNKS.get(kind, kind)
    for number, choice in enumerate(choices):
        own = {name: value for name, value in choice.items() if name not in ("message", "finish_reason")}
        own.setdefault("index", number)
        message = choice.get("message")
        begun = {"delta": _delta(message)} if isinstance(message, dict) else {}
        yield {**shared, "choices": [{**own, **begun, "finish_reason": None}]}
        ended: dict[str, Any] = {"delta": {}} if begun else {"text": ""}
        reason = choice.get("finish_reason") or "stop"
        yield {**shared, "choices": [{"index": own["index"], **ended, "finish_reason": reason}]}
    if usage and answer.get("usage") is not None:
        yield {**shared, "choices": [], "usage": answer["usage"]}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    """A message as one piece. The calls of tools have indexes in streams."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [{"index": at, **call} for at, call in enumerate(calls) if isinstance(call, dict)]}


def _read(body: bytes) -> _Asked:
    try:
        return msgspec.json.decode(body, type=_Asked)
    except (ValueError, RecursionError):
        return _Asked()
