"""The list of plugins, as ``enginehouse plugins list --json`` prints it."""

from __future__ import annotations

import msgspec

from enginehouse.plugin_manager.discovery import Broken, Loaded
from enginehouse.plugin_manager.registry import Registered


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One registered type. ``name`` is the entry point.

    A plugin that cannot be used has one row, with ``error`` and neither type nor kind.
    """

    name: str
    type: str | None
    kind: str | None
    distribution: str
    version: str
    bundled: bool
    error: str | msgspec.UnsetType = msgspec.UNSET


def rows(loaded: Loaded) -> list[Row]:
    """A row for every registered type, then one for every broken plugin."""
    return [*map(_registered, loaded.registry.all()), *map(_broken, loaded.broken)]


def _registered(entry: Registered) -> Row:
    return Row(
        name=entry.entry_point,
        type=entry.type,
        kind=entry.kind,
        distribution=entry.distribution,
        version=entry.version,
        bundled=entry.bundled,
    )


def _broken(entry: Broken) -> Row:
    return Row(
        name=entry.entry_point,
        type=None,
        kind=None,
        distribution=entry.distribution,
        version=entry.version,
        bundled=entry.bundled,
        error=entry.problem.problem,
    )
