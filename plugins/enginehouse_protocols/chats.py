"""Chats as OpenAI has them, as the dialects ask engines for them, and how much a model thinks.

Engines know ``low``, ``medium`` and ``high`` (``reasoning_effort``), and whether the template lets the model think at
all: ``enable_thinking`` in Qwen's and most others, ``thinking`` in DeepSeek's and Granite's. Harmony's, Mistral's and
DeepSeek's templates refuse further levels, or take them for one of these. A chat also has a budget of tokens until an
engine is chosen: its driver says by which name it takes one, if at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from enginehouse.drivers import ThinkingFields
from enginehouse_kit.protocols import Translation

CHATS = "/v1/chat/completions"
_LEVELS: Final = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_BUDGETS: Final = ((4096, "low"), (16384, "medium"))
"""Tokens of reasoning up to which a level is meant; more are ``high``."""
_LEVEL: Final = "reasoning_effort"
_BUDGET: Final = "thinking_budget_tokens"
_TEMPLATE: Final = "chat_template_kwargs"


def new_id(prefix: str) -> str:
    """An id that no other object has."""
    return f"{prefix}{os.urandom(12).hex()}"


class ChatTranslation(Translation):
    """A request as a chat of these ``fields``; a stream also tells its usage."""

    path = CHATS

    def __init__(self, fields: dict[str, Any]) -> None:
        if fields.get("stream"):
            fields["stream_options"] = {"include_usage": True}
        self.body = msgspec.json.encode(fields)
        self._has_level = _LEVEL in fields

    def body_for(self, thinking: ThinkingFields) -> bytes:
        return as_engine_takes_it(self.body, thinking) if self._has_level else self.body


def image_part(url: Any) -> dict[str, Any]:
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


def add_message(messages: list[dict[str, Any]], role: str, content: Any) -> None:
    """Add a message. Those of the system at the beginning are one: many models' templates take no second one."""
    first = messages[0] if len(messages) == 1 and role == "system" else None
    if first is not None and first["role"] == role and isinstance(content, str) and isinstance(first["content"], str):
        first["content"] += f"\n\n{content}"
    else:
        messages.append({"role": role, "content": content})


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
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}


def thoughts(text: str) -> dict[str, Any]:
    """The fields of an assistant's message with its earlier reasoning, by both names that engines read."""
    return {"reasoning_content": text, "reasoning": text}


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def effort_fields(effort: Effort | None) -> dict[str, Any]:
    """The fields of a chat for an effort; none without one."""
    if effort is None:
        return {}
    return switch_fields(on=False) if effort == "none" else {_LEVEL: _LEVELS[effort]}


def budget_fields(tokens: int) -> dict[str, Any]:
    """The fields of a chat for so many tokens of reasoning."""
    level = next((level for most, level in _BUDGETS if tokens <= most), "high")
    return {_LEVEL: level, _BUDGET: tokens}


def switch_fields(*, on: bool) -> dict[str, Any]:
    """The fields of a chat that lets the model think or not."""
    return {_TEMPLATE: {"enable_thinking": on, "thinking": on}}


def as_engine_takes_it(body: bytes, takes: ThinkingFields) -> bytes:
    """The ``body`` of a chat with a level, with the fields that the engine takes."""
    fields = _fields(body)
    budget = fields.pop(_BUDGET, None)
    if budget is not None and takes.budget:
        fields[takes.budget] = budget
    if takes.level_in_template:
        fields[_TEMPLATE] = msgspec.Raw(b'{"%s":%s}' % (_LEVEL.encode(), bytes(fields[_LEVEL])))
    return msgspec.json.encode(fields)
