"""Finds the parameters of a plugin's type in ``[plugins]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from enginehouse.config.schema import PluginSettings

PLUGIN_KINDS = (
    "extractor",
    "filter",
    "scorer",
    "strategy",
    "scheduler",
    "swapper",
    "scaler",
    "driver",
    "launcher",
    "discoverer",
    "model_source",
    "protocol",
    "guard",
    "limit_store",
    "usage_store",
    "rescheduling_policy",
    "migrator",
    "engine_policy",
    "observer",
    "routes",
    "command",
)


class PluginTable(NamedTuple):
    """One table of parameters. ``kind`` is empty where the table is for every kind that has the type."""

    key: str
    kind: str
    type: str
    parameters: Mapping[str, Any]


def plugin_table(settings: PluginSettings, kind: str, type: str) -> PluginTable:
    """The parameters of ``type``: ``[plugins.KIND.TYPE]`` if there is such a table, else ``[plugins.TYPE]``."""
    bare = PluginTable(f"plugins.{type}", "", type, {})
    for table in plugin_tables(settings):
        if (table.kind, table.type) == (kind, type):
            return table
        if (table.kind, table.type) == ("", type):
            bare = table
    return bare


def plugin_tables(settings: PluginSettings) -> Iterator[PluginTable]:
    """Every table of parameters. The name of a kind always begins ``[plugins.KIND.TYPE]``."""
    for name, table in settings.parameters.items():
        if name not in PLUGIN_KINDS:
            yield PluginTable(f"plugins.{name}", "", name, table)
            continue
        for type, parameters in table.items():
            yield PluginTable(f"plugins.{name}.{type}", name, type, parameters)
