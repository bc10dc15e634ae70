"""Writes ``docs/reference/plugins.md``: every bundled type with its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.kinds import KINDS, Kind
from enginehouse.plugin_manager.registry import Registered, Registry

_HEAD = """\
# Bundled plugins

<!-- Written by docs/generate.py: change the source, then run `make docs`. -->

The types that come with Enginehouse, by kind. `enginehouse plugins list` also shows those of other installed plugins.
[Hooks](hooks.md) says when each kind is used. The parameters of a scorer belong into its `[[routing.scorers]]` table,
those of other types into `[plugins.TYPE]`.
"""


def plugins_page() -> str:
    """The whole page."""
    registry = load_plugins(PluginSettings(enabled=[])).registry
    return "\n".join(
        [_HEAD, *(line for kind in KINDS if registry.types(kind.name) for line in _section(kind, registry))]
    )


def _section(kind: Kind, registry: Registry) -> Iterator[str]:
    title = kind.hook.removeprefix("register_").capitalize()
    yield f"## {title}\n\n| type | plugin | | parameters |\n|---|---|---|---|"
    for type in registry.types(kind.name):
        yield _row(registry.get(kind.name, type))
    yield ""


def _row(entry: Registered) -> str:
    return f"| `{entry.type}` | `{entry.entry_point}` | {_first_paragraph(entry.factory)} | {_parameters(entry)} |"


def _parameters(entry: Registered) -> str:
    config = getattr(entry.factory, "Config", None)
    return "" if config is None else _first_paragraph(config)


def _first_paragraph(documented: object) -> str:
    text = (inspect.getdoc(documented) or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
