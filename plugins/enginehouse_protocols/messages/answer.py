"""A chat's answer as a message, whole."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.protocols import Envelope
from enginehouse_protocols.chats import ChatTranslation, new_id
from enginehouse_protocols.fields import parsed
from enginehouse_protocols.said.blocks import Block, Blocks
from enginehouse_protocols.said.engine_chat import read_usage
from enginehouse_protocols.said.said import Thinking, Usage

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
_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class CountedTokens(ChatTranslation):
    """The tokens of a prompt, as the engine counts them."""

    def answer(self, answer: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"input_tokens": read_usage(answer.get("usage")).prompt})


def message(model: str, blocks: Blocks) -> dict[str, Any]:
    """The whole message."""
    content = [_content(block) for block in blocks.all]
    return empty_message(model) | {"content": content, **stop(blocks), "usage": usage_object(blocks.usage)}


def _content(block: Block) -> dict[str, Any]:
    if block.call is None:
        return empty_block(block) | {"thinking" if block.kind is Thinking else "text": block.text}
    return empty_block(block) | {"input": parsed(block.call.arguments)}


def empty_block(block: Block) -> dict[str, Any]:
    """A block that has not begun. A refusal is a text."""
    if (call := block.call) is not None:
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    if block.kind is Thinking:
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


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


def stop(blocks: Blocks) -> dict[str, Any]:
    """Why the message ended. A chat whose ``tool_choice`` names the tool that it calls ends with ``stop``."""
    finish = blocks.finish
    if finish.stopped_at:
        return {"stop_reason": "stop_sequence", "stop_sequence": finish.stopped_at}
    usual = "tool_use" if blocks.calls else "refusal" if blocks.refuses else "end_turn"
    return {"stop_reason": _STOPS.get(finish.reason, usual), "stop_sequence": None}


def usage_object(usage: Usage) -> dict[str, int]:
    """Token counts; Anthropic counts cached tokens apart from those of the input."""
    return {
        "input_tokens": max(0, usage.prompt - usage.cached),
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
