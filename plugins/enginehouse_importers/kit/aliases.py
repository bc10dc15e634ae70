"""Aliases of a converted configuration, which lead to models: the gateway follows no alias of an alias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def targets(aliases: Mapping[str, Any], name: str) -> list[str]:
    """The models behind ``name``, in the order in which they are tried; ``name`` itself if it is no alias."""
    found = aliases.get(name, name)
    entries = found if isinstance(found, list) else [found]
    return [str(each["to"]) if isinstance(each, dict) else str(each) for each in entries]


def followed(aliases: Mapping[str, str]) -> dict[str, str]:
    """``aliases`` with the model at the end of each chain. One that leads to itself stays as it is."""
    return {name: _last(aliases, name) or target for name, target in aliases.items()}


def _last(aliases: Mapping[str, str], name: str) -> str:
    seen: set[str] = set()
    while name in aliases and name not in seen:
        seen.add(name)
        name = aliases[name]
    return "" if name in seen else name
