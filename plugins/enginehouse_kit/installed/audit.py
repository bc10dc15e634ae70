"""Finds mistakes of plugins that load without an error, for ``enginehouse plugins check``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from enginehouse import PluginError
from enginehouse_kit.installed.naming import name_faults
from enginehouse_kit.plugin_manager import GROUP, LoadedPlugins, PluginOrigin


def audit(loaded: LoadedPlugins, misplaced: Callable[[str], str]) -> Iterator[PluginError]:
    """The mistakes in names, entry points and hooks. ``misplaced`` says why a command cannot have its name."""
    yield from _misplaced()
    for origin in loaded.plugins:
        for fault in [*name_faults(origin), *_hook_faults(origin, loaded)]:
            yield origin.error(fault)
    for type in loaded.registry.types("command"):
        if fault := misplaced(type):
            yield loaded.registry.get("command", type).error(f"{fault} in Enginehouse: register it under another name")


def _misplaced() -> Iterator[PluginError]:
    for entry_point in _misplaced_entry_points():
        distribution = entry_point.dist
        yield PluginError(
            f"the entry-point group '{entry_point.group}' is not read: use [project.entry-points.{GROUP}]",
            distribution=distribution.name if distribution else "",
            version=distribution.version if distribution else "",
            plugin=entry_point.name,
        )


def _misplaced_entry_points() -> Iterator[EntryPoint]:
    """Entry points in groups whose names look like ours, such as ``enginehouse-plugins``."""
    for other in sorted(entry_points().groups):
        letters = re.sub(r"[^a-z]", "", other.lower()).removesuffix("s").removesuffix("plugin")
        if other != GROUP and get_close_matches(letters, [GROUP], cutoff=0.9):
            yield from entry_points(group=other)


def _hook_faults(origin: PluginOrigin, loaded: LoadedPlugins) -> Iterator[str]:
    if not any(entry.entry_point == origin.entry_point for entry in loaded.registry.all()):
        yield f"it registers nothing: implement a hook such as 'register_filters', marked with '@{GROUP}.hookimpl'"
