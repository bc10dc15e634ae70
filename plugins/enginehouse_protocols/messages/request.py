"""A request for a message, as one for a chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from enginehouse import InvalidRequest
from enginehouse_protocols.bounds import check_items
from enginehouse_protocols.chats import function_tool, image_part, joined, text_part, tool_call
from enginehouse_protocols.fields import json_text, put

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_EFFORTS = ((4096, "low"), (16384, "medium"))
"""Reasoning tokens up to which OpenAI's levels are meant; more are ``high``."""
_LEVELS = {"low": "low", "medium": "medium"}
"""Anthropic's efforts as levels that every engine knows; those above are ``high``."""


class Source(msgspec.Struct):
    """Where an image comes from."""

    type: str
    media_type: str = "image/png"
    data: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """The URL, or a ``data:`` URL. Raises ``InvalidRequest`` for a file that Anthropic keeps."""
        if self.type == "base64":
            return f"data:{self.media_type};base64,{self.data}"
        if self.type == "url":
            return self.url
        raise InvalidRequest(f"An image's source is 'base64' or 'url', not '{self.type}'", param="messages")


class Block(msgspec.Struct):
    """A block of content; each type has some of these fields."""

    type: str
    text: str = ""
    thinking: str = ""
    source: Source | None = None
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    content: str | list[Block] = ""
    is_error: bool = False


class Turn(msgspec.Struct):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(msgspec.Struct):
    """A tool of the client's; ``type`` names one that Anthropic would run."""

    name: str
    description: str | None = None
    input_schema: Any = None
    type: str = "custom"


class ToolChoice(msgspec.Struct):
    """Which tool the answer must use."""

    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool = False


class Thinking(msgspec.Struct):
    """Whether and how long the model thinks."""

    type: str
    budget_tokens: int | None = None


class OutputConfig(msgspec.Struct):
    """How much the model does for its answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Metadata(msgspec.Struct):
    """Who asks."""

    user_id: str | None = None


class MessagesBody(msgspec.Struct):
    """The fields of a request that have a meaning in a chat."""

    model: str
    messages: list[Turn]
    max_tokens: int | None = None
    system: str | list[Block] = ""
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None


def chat_fields(body: MessagesBody) -> dict[str, Any]:
    """The fields of the chat.

    Raises ``InvalidRequest`` for what no chat can say, ``BodyTooLarge`` for too many items.
    """
    check_items(len(body.messages) + len(body.tools or ()) + sum(_items(turn.content) for turn in body.messages))
    fields: dict[str, Any] = {"model": body.model, "messages": list(_messages(body)), "stream": body.stream}
    put(
        fields,
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=body.stop_sequences or None,
        user=body.metadata.user_id if body.metadata else None,
        reasoning_effort=_effort(body),
    )
    if body.tools:
        fields["tools"] = [_tool(tool) for tool in body.tools]
        if (choice := body.tool_choice) is not None:
            named = {"type": "function", "function": {"name": choice.name}}
            fields["tool_choice"] = _CHOICES.get(choice.type, named)
            if choice.disable_parallel_tool_use:
                fields["parallel_tool_calls"] = False
    return fields


def _items(content: str | Sequence[Block]) -> int:
    """The number of blocks, and of those within results."""
    return 0 if isinstance(content, str) else len(content) + sum(_items(block.content) for block in content)


def _messages(body: MessagesBody) -> Iterator[dict[str, Any]]:
    if body.system:
        yield {"role": "system", "content": _text(body.system)}
    for turn in body.messages:
        if isinstance(turn.content, str):
            yield {"role": turn.role, "content": turn.content}
        elif turn.role == "assistant":
            yield _assistant(turn.content)
        else:
            yield from _user(turn.role, turn.content)


def _user(role: str, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """A turn of the user: results of tools come first, because they answer the assistant's calls."""
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if block.type == "tool_result":
            yield from _result(block, parts)
        else:
            parts.append(_part(block))
    if parts:
        yield {"role": role, "content": joined(parts)}


def _result(block: Block, parts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A tool's result. Its images go to the user's message: a tool's message takes only text."""
    content = [text_part(block.content)] if isinstance(block.content, str) else [_part(each) for each in block.content]
    texts = [part for part in content if part["type"] == "text"]
    parts += [part for part in content if part["type"] != "text"]
    text = "\n".join(part["text"] for part in texts)
    yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": f"Error: {text}" if block.is_error else text}


def _assistant(blocks: Sequence[Block]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    texts = [block.text for block in blocks if block.type == "text"]
    calls = [
        tool_call(block.id, block.name, json_text(block.input or {})) for block in blocks if block.type == "tool_use"
    ]
    thinking = "".join(block.thinking for block in blocks if block.type == "thinking")
    if texts or not calls:
        message["content"] = "\n".join(texts)
    if calls:
        message["tool_calls"] = calls
    if thinking:
        message["reasoning_content"] = thinking
    return message


def _part(block: Block) -> dict[str, Any]:
    if block.type == "text":
        return text_part(block.text)
    if block.type == "image" and block.source is not None:
        return image_part(block.source.address)
    raise InvalidRequest(
        f"The engine has no content of type '{block.type}': send its text, or images of its pages", param="messages"
    )


def _text(content: str | Sequence[Block]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.type != "custom":
        raise InvalidRequest(f"Only Anthropic runs the tool '{tool.type}': remove it from 'tools'", param="tools")
    return function_tool(tool.name, tool.description, tool.input_schema)


def _effort(body: MessagesBody) -> str | None:
    if body.output_config is not None and (effort := body.output_config.effort) is not None:
        return _LEVELS.get(effort, "high")
    thinking = body.thinking
    if thinking is None or thinking.type != "enabled" or thinking.budget_tokens is None:
        return None
    budget = thinking.budget_tokens
    return next((effort for most, effort in _EFFORTS if budget <= most), "high")
