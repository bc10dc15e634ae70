"""A request for a response, as one for a chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from enginehouse import InvalidRequest
from enginehouse_protocols.bounds import check_items
from enginehouse_protocols.chats import function_tool, image_part, joined, text_part, tool_call
from enginehouse_protocols.fields import json_text, put

_ROLES = {"developer": "system"}
_LEFT_OUT = frozenset({"namespace"})
"""Groups of the client's own tools, which Codex offers besides others: no chat can name them, so none is called."""


class Part(msgspec.Struct):
    """A part of a message; each type has some of these fields."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None


class Item(msgspec.Struct):
    """An item of the conversation; each type has some of these fields. Without a type, it is a message."""

    type: str = "message"
    role: str = "user"
    content: str | list[Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: Any = ""
    summary: list[Part] = []


class Tool(msgspec.Struct):
    """A tool of the client's, or one that OpenAI would run."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None


class TextFormat(msgspec.Struct):
    """The form of the text."""

    type: str = "text"
    name: str = "answer"
    schema: Any = None
    strict: bool | None = None


class Text(msgspec.Struct):
    """How the text is."""

    format: TextFormat | None = None


class Reasoning(msgspec.Struct):
    """How much the model thinks."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None


class ResponsesBody(msgspec.Struct):
    """The fields of a request that have a meaning in a chat."""

    model: str
    input: str | list[Item] = ""
    instructions: str | None = None
    stream: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    conversation: Any = None


def chat_fields(body: ResponsesBody, items: Sequence[Item]) -> dict[str, Any]:
    """The fields of the chat about the conversation ``items``.

    Raises ``InvalidRequest`` for what no chat can say, ``BodyTooLarge`` for too many items.
    """
    parts = sum(len(item.content) for item in items if isinstance(item.content, list))
    check_items(len(items) + parts + len(body.tools or ()))
    if body.conversation is not None:
        raise InvalidRequest("The gateway keeps no conversations: send all of it in 'input'", param="conversation")
    messages = list(_messages(body.instructions, items))
    fields: dict[str, Any] = {"model": body.model, "messages": messages, "stream": body.stream}
    put(
        fields,
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        user=body.user,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        response_format=_format(body.text.format if body.text else None),
    )
    if tools := [_tool(tool) for tool in body.tools or () if tool.type not in _LEFT_OUT]:
        fields["tools"] = tools
        put(fields, tool_choice=_choice(body.tool_choice), parallel_tool_calls=body.parallel_tool_calls)
    return fields


def _messages(instructions: str | None, items: Sequence[Item]) -> Iterator[dict[str, Any]]:
    if instructions:
        yield {"role": "system", "content": instructions}
    calls: list[dict[str, Any]] = []
    for item in items:
        if item.type == "function_call":
            calls.append(tool_call(item.call_id, item.name, item.arguments))
            continue
        if calls:  # calls of one turn are one message in a chat
            yield {"role": "assistant", "content": None, "tool_calls": calls}
            calls = []
        yield from _message(item)
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}


def _message(item: Item) -> Iterator[dict[str, Any]]:
    if item.type == "message":
        yield {"role": _ROLES.get(item.role, item.role), "content": _content(item.content or "")}
    elif item.type == "function_call_output":
        yield {"role": "tool", "tool_call_id": item.call_id, "content": json_text(item.output)}
    elif item.type != "reasoning":  # the model's earlier thoughts are not repeated to it
        raise InvalidRequest(f"The engine has no items of type '{item.type}'", param="input")


def _content(content: str | Sequence[Part]) -> str | Sequence[dict[str, Any]]:
    return content if isinstance(content, str) else joined([_part(part) for part in content])


def _part(part: Part) -> dict[str, Any]:
    if part.type in ("input_text", "output_text", "text"):
        return text_part(part.text)
    if part.type == "refusal":
        return text_part(part.refusal)
    if part.type == "input_image" and part.image_url is not None:
        return image_part(part.image_url)
    raise InvalidRequest(f"The engine has no content of type '{part.type}'", param="input")


def _format(format: TextFormat | None) -> dict[str, Any] | None:
    if format is None or format.type == "text":
        return None
    if format.type != "json_schema":
        return {"type": format.type}
    schema: dict[str, Any] = {"name": format.name, "schema": format.schema}
    put(schema, strict=format.strict)
    return {"type": "json_schema", "json_schema": schema}


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.type != "function":
        raise InvalidRequest(f"Only OpenAI runs the tool '{tool.type}': remove it from 'tools'", param="tools")
    return function_tool(tool.name, tool.description, tool.parameters, tool.strict)


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name", "")}}
    return choice
