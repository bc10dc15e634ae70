"""The list of plugins, as ``enginehouse plugins list --json`` prints it."""

from __future__ import annotations

from enum import Enum

import msgspec

from enginehouse_kit.plugin_manager import LoadedPlugins, PluginOrigin, PluginSettings, load_plugins


class PluginState(str, Enum):
    """The state of a plugin."""

    OK = "ok"
    EMPTY = "empty"
    """It registered nothing."""
    DISABLED = "disabled"
    """The configuration excludes it."""
    BROKEN = "broken"
    """It cannot be used."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One registered type; ``name`` is the entry point of its plugin.

    A plugin in another state than ``ok`` has one row, without type and kind. A broken one has an ``error``.
    """

    name: str
    type: str | None = None
    kind: str | None = None
    distribution: str
    version: str
    bundled: bool
    state: PluginState
    error: str | msgspec.UnsetType = msgspec.UNSET


def installed_plugins() -> list[Row]:
    """The rows of ``enginehouse plugins list``. Raises ``PluginError`` if a plugin cannot be used."""
    return rows(load_plugins(PluginSettings()))


def rows(loaded: LoadedPlugins) -> list[Row]:
    """A row for every registered type, then one for every plugin that is empty, disabled or broken."""
    entries = loaded.registry.all()
    active = {(entry.entry_point, entry.distribution) for entry in entries}
    empty = [each for each in loaded.plugins if (each.entry_point, each.distribution) not in active]
    return [
        *(_row(entry, PluginState.OK, entry.type, entry.kind) for entry in entries),
        *(_row(each, PluginState.EMPTY) for each in empty),
        *(_row(each, PluginState.DISABLED) for each in loaded.disabled),
        *(_row(each, PluginState.BROKEN, error=each.problem.problem) for each in loaded.broken),
    ]


def _row(
    origin: PluginOrigin,
    state: PluginState,
    type: str | None = None,
    kind: str | None = None,
    error: str | msgspec.UnsetType = msgspec.UNSET,
) -> Row:
    return Row(
        name=origin.entry_point,
        type=type,
        kind=kind,
        distribution=origin.distribution,
        version=origin.version,
        bundled=origin.bundled,
        state=state,
        error=error,
    )
