"""Finds mistakes of plugins that load without an error, for ``enginehouse plugins check``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from enginehouse import PluginError
from enginehouse_kit.plugin_manager import COMMANDS, GROUP, LoadedPlugins, PluginOrigin, installed_plugins


def distribution_name(entry_point: str) -> str:
    """The required distribution name of a plugin that is not bundled."""
    return "enginehouse-" + re.sub(r"[-_.]+", "-", entry_point).lower()


def module_name(entry_point: str) -> str:
    """The required module name of a plugin."""
    return distribution_name(entry_point).replace("-", "_")


def name_faults(origin: PluginOrigin) -> Iterator[str]:
    """How a plugin breaks the name rule. Bundled plugins all come in the distribution ``enginehouse``."""
    distribution, module = distribution_name(origin.entry_point), module_name(origin.entry_point)
    if not origin.bundled and re.sub(r"[-_.]+", "-", origin.distribution).lower() != distribution:
        yield f"its distribution must be named '{distribution}'"
    if origin.module.partition(".")[0] != module:
        yield f"its module must be named '{module}', not '{origin.module}'"


def audit(loaded: LoadedPlugins, misplaced: Callable[[str], str]) -> Iterator[PluginError]:
    """The mistakes in names, entry points and hooks. ``misplaced`` says why a command cannot have its name."""
    yield from _misplaced()
    yield from _without_plugin()
    for origin in loaded.plugins:
        for fault in [*name_faults(origin), *_hook_faults(origin, loaded)]:
            yield origin.error(fault)
    for type in loaded.registry.types("command"):
        if fault := misplaced(type):
            yield loaded.registry.get("command", type).error(f"{fault} in Enginehouse: give it another name")


def _misplaced() -> Iterator[PluginError]:
    for entry_point in _misplaced_entry_points():
        group = f"'{COMMANDS}'" if "command" in entry_point.group.lower() else GROUP
        yield _fault(
            entry_point, f"the entry-point group '{entry_point.group}' is not read: use [project.entry-points.{group}]"
        )


def _misplaced_entry_points() -> Iterator[EntryPoint]:
    """Entry points in groups whose names look like ours, such as ``enginehouse-plugins``."""
    for other in sorted(entry_points().groups):
        letters = re.sub(r"[^a-z]", "", other.lower()).removesuffix("s").removesuffix("plugin")
        if other not in (GROUP, COMMANDS) and get_close_matches(letters, [GROUP, f"{GROUP}command"], cutoff=0.9):
            yield from entry_points(group=other)


def _without_plugin() -> Iterator[PluginError]:
    """Commands that belong to no plugin, so that nobody could disable them."""
    known = {command.point for plugin in installed_plugins() for command in plugin.commands}
    for entry_point in entry_points(group=COMMANDS):
        if entry_point not in known:
            package = entry_point.module.partition(".")[0]
            yield _fault(entry_point, f"the command belongs to no plugin: its distribution has none in '{package}'")


def _fault(entry_point: EntryPoint, problem: str) -> PluginError:
    distribution = entry_point.dist
    named = {"distribution": distribution.name, "version": distribution.version} if distribution else {}
    return PluginError(problem, plugin=entry_point.name, **named)


def _hook_faults(origin: PluginOrigin, loaded: LoadedPlugins) -> Iterator[str]:
    if not any(entry.entry_point == origin.entry_point for entry in loaded.registry.all()):
        yield f"it registers nothing: implement a hook such as 'register_filters', marked with '@{GROUP}.hookimpl'"
