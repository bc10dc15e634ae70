"""The forms in which model families write calls of tools, where an engine leaves them in the text."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class Marker(NamedTuple):
    """A call, or a list of calls, as JSON from ``begin`` to ``end``, or to the end of the text if that is empty."""

    begin: str
    end: str


MARKERS = (
    Marker("<tool_call>", "</tool_call>"),  # Hermes, Qwen
    Marker("[TOOL_CALLS]", ""),  # Mistral
    Marker("<|python_tag|>", ""),  # Llama 3
)


class LeakedCall(NamedTuple):
    """A call of a tool; ``arguments`` are JSON."""

    name: str
    arguments: str


def read_calls(text: str) -> list[LeakedCall]:
    """The calls in the text between two markers; none if it cannot be read as such."""
    try:
        found = msgspec.json.decode(text.strip().removesuffix("<|eom_id|>").removesuffix("<|eot_id|>"))
    except (ValueError, RecursionError):
        return []
    calls = [_call(each) for each in (found if isinstance(found, list) else [found])]
    return [each for each in calls if each is not None] if all(calls) else []


def _call(value: Any) -> LeakedCall | None:
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return LeakedCall(name, arguments)
    return LeakedCall(name, msgspec.json.encode(arguments).decode()) if isinstance(arguments, dict) else None


def first_marker(text: str) -> tuple[int, Marker | None]:
    """Where the first marker begins in ``text``, and which it is.

    Without one, where the end of the text may be the beginning of one: its length if it cannot.
    """
    found = [(at, each) for each in MARKERS if (at := text.find(each.begin)) >= 0]
    if found:
        return min(found)
    longest = max(len(each.begin) for each in MARKERS)
    for at in range(max(0, len(text) - longest), len(text)):
        if any(each.begin.startswith(text[at:]) for each in MARKERS):
            return at, None
    return len(text), None
