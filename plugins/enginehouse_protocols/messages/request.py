"""A request for a message, as one for a chat."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Literal

import msgspec

from enginehouse import InvalidRequest
from enginehouse_kit.prefixes.volatile_lines import without_volatile_lines
from enginehouse_protocols.chats import (
    Effort,
    add_message,
    budget_fields,
    effort_fields,
    function_tool,
    image_part,
    joined,
    switch_fields,
    text_part,
    thoughts,
    tool_call,
)
from enginehouse_protocols.fields import ItemCount, data_url, invalid, json_text, put, raw_text

_log = logging.getLogger(__name__)

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_NOTHING: Final = msgspec.Raw(b'""')
_ANTHROPICS: Final = ("web_search", "web_fetch", "code_execution", "tool_search", "advisor", "mcp_toolset")
"""The beginnings of the types of tools that Anthropic runs."""
_LEFT_OUT: Final = frozenset(
    {
        "redacted_thinking",
        "server_tool_use",
        "mcp_tool_use",
        "mcp_tool_result",
        "tool_reference",
        "container_upload",
    }
)
"""Blocks of the history that only Anthropic can read, or that only its own tools have made. So are other results."""
_SUMMARY: Final = "compaction"
_IS_CLOSED: Final = "The engine has no content of type '{}': send its text, or images of its pages"


class Source(msgspec.Struct):
    """Where an image or a document comes from."""

    type: str = ""
    media_type: str = "image/png"
    data: msgspec.Raw = _NOTHING
    url: msgspec.Raw = _NOTHING
    content: msgspec.Raw = _NOTHING

    @property
    def address(self) -> msgspec.Raw:
        """The URL, or a ``data:`` URL, as JSON. Raises ``InvalidRequest`` for a file that Anthropic keeps."""
        if self.type == "base64":
            return data_url(self.media_type, self.data, "messages")
        if self.type == "url":
            raw_text(self.url, "messages")
            return self.url
        raise InvalidRequest(f"An image's source is 'base64' or 'url', not '{self.type}'", param="messages")


class Block(msgspec.Struct):
    """A block of content; each type has some of these fields."""

    type: str
    text: str | None = None
    thinking: str | None = None
    source: Source | str | None = None
    """That of a search result is a text."""
    id: str | None = None
    name: str | None = None
    title: str | None = None
    context: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: msgspec.Raw = _NOTHING
    is_error: bool | None = None


class Turn(msgspec.Struct):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block] | None


class Tool(msgspec.Struct):
    """A tool of the client's; ``type`` names one that Anthropic would run."""

    name: str | None = None
    description: str | None = None
    input_schema: Any = None
    type: str | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """Which tool the answer must use."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingSettings(msgspec.Struct):
    """Whether and how long the model thinks."""

    type: str
    budget_tokens: int | None = None


class Format(msgspec.Struct):
    """The form of the text."""

    type: str
    schema: Any = None


class OutputConfig(msgspec.Struct):
    """How much the model does for its answer, and the form of that."""

    effort: Effort | None = None
    format: Format | None = None


class Metadata(msgspec.Struct):
    """Who asks."""

    user_id: str | None = None


class MessagesBody(msgspec.Struct):
    """The fields of a request that have a meaning in a chat."""

    model: str
    messages: list[Turn]
    max_tokens: int | None = None
    system: str | list[Block] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingSettings | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None
    metadata: Metadata | None = None
    mcp_servers: list[Any] | None = None
    thread: Any = None
    compaction: Any = None


def check_thread(thread: Any) -> None:
    """Refuse a conversation that a server is to keep, in the words for which Anthropic's SDK sends all of it."""
    if thread is not None:
        raise InvalidRequest(
            "The gateway keeps no threads: send the whole conversation in 'messages', without 'thread'",
            param="thread",
            details={"error_code": "thread_unsupported_request"},
        )


def chat_fields(body: MessagesBody) -> dict[str, Any]:
    """The fields of the chat.

    Raises ``InvalidRequest`` for what no chat can say, ``BodyTooLarge`` for too many items.
    """
    if body.mcp_servers:
        raise InvalidRequest("Only Anthropic asks the servers of 'mcp_servers': leave them out", param="mcp_servers")
    check_thread(body.thread)
    count = ItemCount()
    count.add(len(body.messages) + len(body.tools or ()))
    messages: list[dict[str, Any]] = []
    for message in _messages(body, count):
        if message["role"] == "system":
            add_message(messages, "system", message["content"])
        else:
            messages.append(message)
    fields: dict[str, Any] = {"model": body.model, "messages": messages, "stream": bool(body.stream)}
    config = body.output_config
    put(
        fields,
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=body.stop_sequences or None,
        user=body.metadata.user_id if body.metadata else None,
        response_format=_format(config.format if config and config.format else body.output_format),
    )
    fields |= _thinking(body)
    if body.tools:
        choice = body.tool_choice
        tools = [_tool(tool) for tool in body.tools if not _leaves_out(choice, tool)]
        put(fields, tools=tools or None)
        if tools and choice is not None:
            named = {"type": "function", "function": {"name": choice.name}}
            fields["tool_choice"] = _CHOICES.get(choice.type, named)
            if choice.disable_parallel_tool_use:
                fields["parallel_tool_calls"] = False
    return fields


def _messages(body: MessagesBody, count: ItemCount) -> Iterator[dict[str, Any]]:
    if body.system and (system := _system(body.system)):
        yield {"role": "system", "content": system}
    for turn in _joined_turns(body.messages):
        if turn.content is None or isinstance(turn.content, str):
            yield {"role": turn.role, "content": turn.content or ""}
            continue
        count.add(len(turn.content))
        if turn.role == "assistant":
            yield _assistant(turn.content)
        else:
            yield from _user(turn.role, turn.content, count)


def _joined_turns(turns: Iterable[Turn]) -> Iterator[Turn]:
    """The turns, of which those of one role in a row are one, as for Anthropic: many templates take no two."""
    for role, group in groupby(_without_summaries(turns), key=lambda turn: turn.role):
        first, *others = group
        if not others or role == "system":
            yield from (first, *others)
        else:
            yield Turn(role, [block for turn in (first, *others) for block in _blocks(turn.content)])


def _without_summaries(turns: Iterable[Turn]) -> Iterator[Turn]:
    """The turns, with summaries of earlier ones as turns of the user: many templates take no other first."""
    for turn in turns:
        if turn.role != "assistant" or not isinstance(turn.content, list):
            yield turn
            continue
        summaries = [block for block in turn.content if block.type == _SUMMARY]
        if summaries:
            yield Turn("user", summaries)
        if len(summaries) < len(turn.content):
            yield Turn(turn.role, [block for block in turn.content if block.type != _SUMMARY])


def _blocks(content: str | list[Block] | None) -> list[Block]:
    return content if isinstance(content, list) else [Block("text", content)] if content else []


def _system(content: str | Sequence[Block]) -> str:
    texts = [content] if isinstance(content, str) else [block.text or "" for block in content]
    return "\n".join(text for each in texts if (text := without_volatile_lines(each)))


def _user(role: str, blocks: Sequence[Block], count: ItemCount) -> Iterator[dict[str, Any]]:
    """A turn of the user: results of tools come first, because they answer the assistant's calls."""
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if block.type == "tool_result":
            yield _result(block, parts, count)
        else:
            parts += _parts(block, count)
    if parts:
        yield {"role": role, "content": joined(parts)}


def _result(block: Block, parts: list[dict[str, Any]], count: ItemCount) -> dict[str, Any]:
    """A tool's result. Its images go to the user's message: a tool's message takes only text."""
    content = list(_content(block.content, count))
    parts += [part for part in content if part["type"] != "text"]
    text = "\n".join(part["text"] for part in content if part["type"] == "text")
    said = f"Error: {text}" if block.is_error else text
    return {"role": "tool", "tool_call_id": block.tool_use_id or "", "content": said}


def _content(content: msgspec.Raw, count: ItemCount) -> Iterator[dict[str, Any]]:
    """The parts of what is within a block."""
    try:
        within = msgspec.json.decode(content, type=str | list[Block] | None)
    except msgspec.ValidationError as error:
        raise invalid(error, "messages[...].content") from None
    if isinstance(within, str):
        yield text_part(within)
    elif within is not None:
        count.add(len(within))
        for block in within:
            yield from _parts(block, count)


def _assistant(blocks: Sequence[Block]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    texts = [block.text or "" for block in blocks if block.type == "text"]
    calls = [
        tool_call(block.id or "", block.name or "", json_text(block.input or {}))
        for block in blocks
        if block.type == "tool_use"
    ]
    thinking = "".join(block.thinking or "" for block in blocks if block.type == "thinking")
    if texts or not calls:
        message["content"] = "\n".join(texts)
    if calls:
        message["tool_calls"] = calls
    return message | thoughts(thinking) if thinking else message


def _parts(block: Block, count: ItemCount) -> Iterator[dict[str, Any]]:
    if block.type == "text":
        yield text_part(block.text or "")
    elif block.type == "image" and isinstance(block.source, Source):
        yield image_part(block.source.address)
    elif block.type == "document" and isinstance(block.source, Source):
        yield from _document(block, block.source, count)
    elif block.type == "search_result":
        yield from (*_title(block), *_content(block.content, count))
    elif block.type == _SUMMARY:
        yield from (part for part in _content(block.content, count) if part.get("text"))
    elif block.type in _LEFT_OUT or block.type.endswith("_tool_result"):
        _log.debug("A block of type '%s' is left out: a chat cannot express it", block.type)
    else:
        raise InvalidRequest(_IS_CLOSED.format(block.type), param="messages")


def _document(block: Block, source: Source, count: ItemCount) -> Iterator[dict[str, Any]]:
    """A document whose text the client has sent."""
    text = {"text": source.data, "content": source.content}.get(source.type)
    if text is None:
        raise InvalidRequest(_IS_CLOSED.format(block.type), param="messages")
    yield from (*_title(block), *_content(text, count))


def _title(block: Block) -> list[dict[str, Any]]:
    return [text_part(text) for text in (block.title, block.context) if text]


def _leaves_out(choice: ToolChoice | None, tool: Tool) -> bool:
    """Whether the choice of tools says that this one, which the client does not run, is not called."""
    if choice is None or _is_clients(tool):
        return False
    return choice.type == "none" or (choice.type == "tool" and choice.name != tool.name)


def _is_clients(tool: Tool) -> bool:
    return tool.type in (None, "custom") or tool.input_schema is not None


def _tool(tool: Tool) -> dict[str, Any]:
    if _is_clients(tool):
        return function_tool(tool.name or "", tool.description, tool.input_schema, tool.strict)
    kind = tool.type or ""
    if kind.startswith(_ANTHROPICS):
        raise InvalidRequest(f"Only Anthropic runs the tool '{kind}': remove it from 'tools'", param="tools")
    raise InvalidRequest(
        f"Only Anthropic's models know the tool '{kind}': declare it with an 'input_schema'", param="tools"
    )


def _format(format: Format | None) -> dict[str, Any] | None:
    if format is None or format.type != "json_schema":
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": format.schema}}


def _thinking(body: MessagesBody) -> dict[str, Any]:
    effort = effort_fields(body.output_config.effort if body.output_config else None)
    thinking = body.thinking
    if thinking is None:
        return effort
    if thinking.type == "disabled":
        return effort or switch_fields(on=False)
    if thinking.type == "enabled" and thinking.budget_tokens is not None:
        return budget_fields(thinking.budget_tokens) | effort
    return effort
