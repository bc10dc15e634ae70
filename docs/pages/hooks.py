"""Writes ``docs/reference/hooks.md``: every registration hook with its interface."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

from enginehouse.plugin_manager.installed import COMMANDS
from enginehouse.plugin_manager.kinds import KINDS, Kind

_class_code: Callable[[type], str] = run_path(str(Path(__file__).with_name("types.py")))["class_code"]
_HEAD = """\
# Hooks

A plugin is a module that implements some of these hooks. The gateway calls each hook once, at start, in this order,
with a function `register(type, factory)`: `type` is the name that configuration uses, `factory` is the plugin's class.
The gateway calls a class that declares `Config`, a `msgspec.Struct` of its parameters, with an instance of it, and a
class without `Config` without arguments. No hook runs during a request.

[Write a plugin](../how-to/write-a-plugin.md) shows how to use them. [Types](types.md) lists the data types in the
signatures.
"""


def hooks_page() -> str:
    """The whole page."""
    table = ["| hook | registers | which are used |", "|---|---|---|", *map(_row, KINDS)]
    return "\n".join([_HEAD, *table, "", *map(_section, KINDS)])


def _row(kind: Kind) -> str:
    summary = " ".join(_about(kind).partition("\n\n")[0].split())
    registers, _, used = re.split(r"([,.:] )", summary, maxsplit=1)
    registers = registers.removeprefix("Register ")
    used = used.removeprefix("chosen by ").rstrip(".")
    return f"| `{kind.hook or COMMANDS}` | {registers} | {used[0].lower()}{used[1:]} |"


def _section(kind: Kind) -> str:
    parts = [f"## {kind.hook or COMMANDS}", _about(kind)]
    if kind.interface:
        parts += [
            f"`{kind.interface.__name__}`: {_markdown(kind.interface)}",
            f"```python\n{_class_code(kind.interface)}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def _about(kind: Kind) -> str:
    return f"Register {kind.used}".replace("``", "`")


def _markdown(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").replace("``", "`")
