"""Writes ``docs/reference/hooks.md``: every registration hook with its interface."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from textwrap import indent
from typing import Any

from enginehouse.plugin_manager.installed import COMMANDS
from enginehouse.plugin_manager.kinds import KINDS, Kind, methods

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
        parts += [f"`{kind.interface.__name__}`: {_markdown(kind.interface)}", _code(kind.interface)]
    return "\n\n".join(parts) + "\n"


def _code(interface: type) -> str:
    bases = [base.__name__ for base in interface.__bases__ if base is not object]
    head = f"class {interface.__name__}" + (f"({', '.join(bases)})" if bases else "")
    body = [indent(_method(name, method), "    ") for name, method in methods(interface).items()]
    return "```python\n" + f"{head}:\n" + "\n\n".join(body) + "\n```"


def _method(name: str, method: Callable[..., Any]) -> str:
    """A method with its docstring; annotations are text already, and are shown without quotes."""
    mark = "@abstractmethod\n" if getattr(method, "__isabstractmethod__", False) else ""
    word = "async def" if inspect.iscoroutinefunction(method) else "def"
    text = inspect.getdoc(method) or ""
    docstring = f'"""{text}' + ('\n"""' if "\n" in text else '"""')
    return f"{mark}{word} {name}{str(inspect.signature(method)).replace(chr(39), '')}:\n{indent(docstring, '    ')}"


def _about(kind: Kind) -> str:
    return f"Register {kind.used}".replace("``", "`")


def _markdown(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").replace("``", "`")
