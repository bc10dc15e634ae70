"""What OpenAI's chats say, as the protocols read it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from enginehouse_protocols.fields import json_text, of_engine

CHATS = "/v1/chat/completions"


def new_id(prefix: str) -> str:
    """An id that no other object has."""
    return f"{prefix}{os.urandom(12).hex()}"


class Usage(NamedTuple):
    """Tokens of a prompt and of its answer, and how many of them were cached or were reasoning."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


class ToolPiece(NamedTuple):
    """A piece of a tool call: the first one has ``id`` and ``name``."""

    place: int
    id: str
    name: str
    arguments: str


class Piece(NamedTuple):
    """What one event of a stream, or a whole answer, adds."""

    reasoning: str = ""
    text: str = ""
    refusal: str = ""
    tools: Sequence[ToolPiece] = ()
    finish: str = ""
    """OpenAI's ``finish_reason``, or empty."""
    stopped_at: str = ""
    """The stop sequence that ended the answer, where the engine says it."""
    usage: Usage | None = None


def read_piece(answer: Mapping[str, Any]) -> Piece:
    """The first choice and the usage of an answer or of an event. Raises ``UpstreamError`` for what is neither."""
    choices = of_engine(answer, _Answer).choices or [_Choice()]
    choice = choices[0]
    said = choice.message or choice.delta or _Said()
    return Piece(
        _text(said.reasoning_content) or _text(said.reasoning),
        said.content or choice.text or "",
        _text(said.refusal),
        tuple(_tool(call, place) for place, call in enumerate(said.tool_calls or ())),
        choice.finish_reason or "",
        _text(choice.stop_reason),
        read_usage(answer.get("usage")),
    )


def read_usage(usage: Any) -> Usage | None:
    """The token counts, as far as an answer has them."""
    if not usage or not isinstance(usage, dict):
        return None
    prompt, output = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        _count(usage, "prompt_tokens"),
        _count(prompt, "cached_tokens"),
        _count(usage, "completion_tokens"),
        _count(output, "reasoning_tokens"),
    )


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Said(msgspec.Struct):
    content: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Said | None = None
    delta: _Said | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: Any = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None


def _tool(call: _Call, place: int) -> ToolPiece:
    function = call.function or _Function()
    arguments = json_text(function.arguments) if function.arguments else ""
    return ToolPiece(place if call.index is None else call.index, call.id or "", function.name or "", arguments)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(counts: Any, name: str) -> int:
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if isinstance(value, int) else 0


def chat_body(fields: dict[str, Any]) -> bytes:
    """The body of a chat; a stream also tells its usage."""
    if fields.get("stream"):
        fields["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(fields)


def image_part(url: str) -> dict[str, Any]:
    """A part of a message that is an image."""
    return {"type": "image_url", "image_url": {"url": url}}


def text_part(text: str) -> dict[str, Any]:
    """A part of a message that is text."""
    return {"type": "text", "text": text}


def joined(parts: Sequence[dict[str, Any]]) -> str | Sequence[dict[str, Any]]:
    """The content of a message: a text if all parts are, because not every engine takes lists."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def function_tool(name: str, description: str | None, parameters: Any, strict: bool | None = None) -> dict[str, Any]:
    """A tool as chats declare it."""
    function: dict[str, Any] = {"name": name, "parameters": parameters or {"type": "object", "properties": {}}}
    if description is not None:
        function["description"] = description
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def tool_call(id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call of a tool as an assistant's message has it."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
