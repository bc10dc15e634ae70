"""What OpenAI's chats say, as the protocols read it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

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
    """The first choice and the usage of an answer or of an event."""
    choices = answer.get("choices") or [{}]
    choice = choices[0]
    said = choice.get("message") or choice.get("delta") or {}
    stopped = choice.get("stop_reason")
    return Piece(
        said.get("reasoning_content") or said.get("reasoning") or "",
        said.get("content") or choice.get("text") or "",
        said.get("refusal") or "",
        tuple(_tools(said.get("tool_calls") or ())),
        choice.get("finish_reason") or "",
        stopped if isinstance(stopped, str) else "",
        read_usage(answer.get("usage")),
    )


def _tools(calls: Sequence[Mapping[str, Any]]) -> Iterator[ToolPiece]:
    for place, call in enumerate(calls):
        function = call.get("function") or {}
        name, arguments = function.get("name") or "", function.get("arguments") or ""
        yield ToolPiece(call.get("index", place), call.get("id") or "", name, arguments)


def read_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    """The token counts, if an answer has them."""
    if not usage:
        return None
    prompt, output = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return Usage(
        usage.get("prompt_tokens") or 0,
        prompt.get("cached_tokens") or 0,
        usage.get("completion_tokens") or 0,
        output.get("reasoning_tokens") or 0,
    )


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
