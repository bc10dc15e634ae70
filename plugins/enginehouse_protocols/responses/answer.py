"""Responses, and the items of their output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse_protocols.chats import new_id
from enginehouse_protocols.responses.request import ResponsesBody, TextFormat
from enginehouse_protocols.said.said import Call, Usage


def response_object(body: ResponsesBody, *, stored: bool) -> dict[str, Any]:
    """A response that has not begun, with what the client asked for. ``stored``: it will be kept."""
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": body.model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": stored,
        "temperature": body.temperature,
        "text": {"format": _format(body.text.format if body.text else None)},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools_as_sent,
        "top_p": body.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }


def _format(format: TextFormat | None) -> Any:
    if format is None or format.type != "json_schema":
        return {"type": format.type if format else "text"}
    return msgspec.to_builtins(format)


def ended(response: dict[str, Any], output: Sequence[dict[str, Any]], finish: str, usage: Usage) -> dict[str, Any]:
    """``response`` at its end: completed, or incomplete for want of tokens."""
    cut = why_cut(finish)
    return response | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": list(output),
        "usage": usage_object(usage),
    }


def why_cut(finish: str) -> str | None:
    """Why a response is incomplete; ``None`` if it is not."""
    return {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish)


def usage_object(usage: Usage) -> dict[str, Any]:
    """Token counts."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.output,
    }


def reasoning_item(id: str, text: str | None) -> dict[str, Any]:
    """What the model thought; ``None`` if it has not begun."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"id": id, "type": "reasoning", "summary": [], "content": content}


def message_item(id: str, content: Sequence[dict[str, Any]], status: str) -> dict[str, Any]:
    """What the model said."""
    return {"id": id, "type": "message", "status": status, "role": "assistant", "content": list(content)}


def text_content(text: str) -> dict[str, Any]:
    """A part of a message that is text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_content(text: str) -> dict[str, Any]:
    """A part of a message that is a refusal."""
    return {"type": "refusal", "refusal": text}


def call_item(id: str, call: Call, arguments: str, status: str) -> dict[str, Any]:
    """A call of a function."""
    of = {"call_id": call.id, "name": call.name, "arguments": arguments}
    return {"id": id, "type": "function_call", "status": status, **of}


def custom_call_item(id: str, call: Call, text: str, status: str) -> dict[str, Any]:
    """A call of a tool that takes a text."""
    return {
        "id": id,
        "type": "custom_tool_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "input": text,
    }
