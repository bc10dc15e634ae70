"""Tools that take a text, such as Codex's ``apply_patch``: for a chat, functions with one argument."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse_protocols.chats import function_tool

_INPUT = "input"


def custom_function(name: str, description: str | None, format: Any) -> dict[str, Any]:
    """The tool as a function. A grammar that its text must follow becomes a part of the description."""
    about = description or ""
    if isinstance(format, dict) and isinstance(grammar := format.get("definition"), str):
        about += f"\n\nThe input follows this grammar ({format.get('syntax', 'lark')}):\n{grammar}"
    text = {"type": "string", "description": "The whole input of the tool, as it is"}
    parameters = {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}
    return function_tool(name, about.strip() or None, parameters)


def arguments_of(text: str) -> str:
    """The arguments of a call with this text."""
    return msgspec.json.encode({_INPUT: text}).decode()


def text_of(arguments: str) -> str:
    """The text of a call with these arguments. Models that ignore the schema call it otherwise, or send it bare."""
    try:
        found = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    if isinstance(found, dict):
        texts = [value for value in found.values() if isinstance(value, str)]
        if isinstance(named := found.get(_INPUT), str):
            return named
        if len(texts) == len(found) == 1:
            return texts[0]
    return found if isinstance(found, str) else arguments
