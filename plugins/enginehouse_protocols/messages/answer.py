"""A chat's answer as a message."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse import Envelope, Translation
from enginehouse_protocols.chats import CHATS, Piece, ToolPiece, Usage, chat_body, new_id, read_piece
from enginehouse_protocols.fields import parsed

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal"}


class CountedTokens(Translation):
    """The tokens of a prompt, as the engine counts them."""

    path = CHATS

    def __init__(self, fields: dict[str, Any]) -> None:
        self.body = chat_body(fields)

    def answer(self, answer: dict[str, Any]) -> bytes:
        usage = read_piece(answer).usage or Usage()
        return msgspec.json.encode({"input_tokens": usage.prompt})


def message(model: str, piece: Piece) -> dict[str, Any]:
    """The whole message."""
    content: list[dict[str, Any]] = []
    if piece.reasoning:
        content.append({"type": "thinking", "thinking": piece.reasoning, "signature": ""})
    if text := piece.text or piece.refusal:
        content.append({"type": "text", "text": text})
    content += [_tool_use(tool) for tool in piece.tools]
    return empty_message(model) | {
        "content": content,
        "stop_reason": stop_reason(piece, called=bool(piece.tools)),
        "stop_sequence": piece.stopped_at or None,
        "usage": usage_object(piece.usage or Usage()),
    }


def _tool_use(tool: ToolPiece) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool.id, "name": tool.name, "input": parsed(tool.arguments)}


def empty_message(model: str) -> dict[str, Any]:
    """A message that has not begun."""
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_object(Usage()),
    }


def stop_reason(piece: Piece, *, called: bool) -> str:
    """Why the answer ended. A chat whose ``tool_choice`` names the tool that it ``called`` ends with ``stop``."""
    if piece.stopped_at:
        return "stop_sequence"
    return _STOPS.get(piece.finish, "tool_use" if called else "end_turn")


def usage_object(usage: Usage) -> dict[str, int]:
    """Token counts; Anthropic counts cached tokens apart from those of the input."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def error_object(status: int, envelope: Envelope) -> dict[str, Any]:
    """An error in Anthropic's form, with the gateway's other fields beside its own two."""
    error = dict(envelope["error"])
    details = error.get("details") or {}
    if error.get("code") == "context_length_exceeded" and "tokens" in details and "limit" in details:
        error["message"] = f"prompt is too long: {details['tokens']} tokens > {details['limit']} maximum"
    other = "invalid_request_error" if 400 <= status < 500 else "api_error"
    return {"type": "error", "error": {**error, "type": _ERROR_TYPES.get(status, other)}}
