"""What tools returned, as prompts have it: in most requests of agents, the larger part."""

from __future__ import annotations

from typing import Any

from enginehouse.requests import Part


def result_parts(given: Any) -> list[Part]:
    """The parts of what a tool returned: a text, or a list of texts and images; none of anything else."""
    if isinstance(given, str):
        return [Part(text=given)]
    found = []
    for each in given if isinstance(given, list) else ():
        if isinstance(each, dict):
            type, text = each.get("type"), each.get("text")
            found.append(Part(type if isinstance(type, str) else "", text if isinstance(text, str) else None))
    return found
