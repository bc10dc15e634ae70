"""Writes ``docs/reference/plugins.md``: every bundled type with its parameters."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.kinds import KINDS, Kind
from enginehouse.plugin_manager.registry import Registered, Registry

_HEAD = """\
# Bundled plugins

The types that come with Enginehouse, by kind. `enginehouse plugins list` also shows those of other installed plugins.
[Hooks](hooks.md) shows what each kind does. The parameters of a scorer belong into its `[[routing.scorers]]` table,
those of other types into `[plugins.TYPE]`.
"""


def plugins_page() -> str:
    """The whole page."""
    registry = load_plugins(PluginSettings(enabled=[])).registry
    return "\n".join(
        [_HEAD, *(line for kind in KINDS if registry.types(kind.name) for line in _section(kind, registry))]
    )


def _section(kind: Kind, registry: Registry) -> Iterator[str]:
    title = (kind.hook.removeprefix("register_") or "commands").replace("_", " ").capitalize()
    yield f"## {title}\n\n| type | plugin | | parameters |\n|---|---|---|---|"
    for type in registry.types(kind.name):
        yield _row(registry.get(kind.name, type), registry)
    yield ""


def _row(entry: Registered, registry: Registry) -> str:
    factory: Any = entry.factory.func if isinstance(entry.factory, partial) else entry.factory
    help = registry.create("command", entry.type).help if entry.kind == "command" else _docstring(factory)
    about = _first_paragraph(help)
    return f"| `{entry.type}` | `{entry.entry_point}` | {about} | {_parameters(entry)} |"


def _parameters(entry: Registered) -> str:
    config = getattr(entry.factory, "Config", None)
    return "" if config is None else _first_paragraph(inspect.getdoc(config) or "")


def _docstring(documented: type) -> str:
    """The docstring, from the source if the class is compiled: mypyc leaves docstrings out."""
    name = documented.__module__
    file = Path(sys.modules[name].__file__ or "")
    if file.suffix == ".py":
        return inspect.getdoc(documented) or ""
    source = file.with_name(f"{name.rpartition('.')[2]}.py")
    body = ast.parse(source.read_text(encoding="utf-8")).body
    classes = (each for each in body if isinstance(each, ast.ClassDef) and each.name == documented.__name__)
    return ast.get_docstring(next(classes)) or ""


def _first_paragraph(text: str) -> str:
    text = text.partition("\n\n")[0]
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
