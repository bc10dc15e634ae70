"""Finds the parameters of a plugin's type in ``[plugins]``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from enginehouse.config.schema import PluginSettings


class PluginTable(NamedTuple):
    """One table of parameters. ``kind`` is empty where the table is for every kind that has the type."""

    key: str
    kind: str
    type: str
    parameters: Mapping[str, Any]


def plugin_table(settings: PluginSettings, kind: str, type: str) -> PluginTable:
    """The parameters of ``type``: ``[plugins.KIND.TYPE]`` if there is such a table, else ``[plugins.TYPE]``."""
    own = settings.parameters.get(kind, {})
    if type in own:
        return PluginTable(f"plugins.{kind}.{type}", kind, type, own[type])
    return PluginTable(f"plugins.{type}", "", type, settings.parameters.get(type, {}))


def plugin_tables(settings: PluginSettings, kinds: Collection[str]) -> Iterator[PluginTable]:
    """Every table of parameters. The name of one of the ``kinds`` always begins ``[plugins.KIND.TYPE]``."""
    for name, table in settings.parameters.items():
        if name not in kinds:
            yield PluginTable(f"plugins.{name}", "", name, table)
            continue
        for type, parameters in table.items():
            yield PluginTable(f"plugins.{name}.{type}", name, type, parameters)
