"""A configuration as a page for people: the values that are not defaults, one entry in each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tomli_w

_ALWAYS = {("server", "host"), ("server", "port"), ("routing", "strategy"), ("routing", "weights")}
"""Keys that are shown even with default values: the address, the strategy and the like."""


def page(written: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    """The values ``changed``, and some others that are ``written``, as TOML."""
    alone = {name: value for name, value in changed.items() if not isinstance(value, dict)}
    sections = ["".join(_lines(alone))] if alone else []
    for name, table in written.items():
        if not isinstance(table, dict):
            continue
        told = changed.get(name, {})
        shown = {key: told.get(key, table[key]) for key in table if key in told or (name, key) in _ALWAYS}
        if shown or (name in changed and not table):  # a table that says something by being there
            sections.append(f"[{name}]\n{''.join(_lines(shown))}")
    return "\n".join(sections)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{_key(key)} = {_inline(value)}\n"


def _inline(value: Any) -> str:
    """``value`` on one line; tables in an array on a line each."""
    if isinstance(value, dict):
        entries = ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        items = [_inline(item) for item in value]
        of_tables = value and all(isinstance(item, dict) for item in value)
        return "[\n" + "".join(f"    {item},\n" for item in items) + "]" if of_tables else f"[{', '.join(items)}]"
    return tomli_w.dumps({"_": value})[len("_ = ") : -1]


def _key(key: str) -> str:
    return tomli_w.dumps({key: 0})[: -len(" = 0\n")]
