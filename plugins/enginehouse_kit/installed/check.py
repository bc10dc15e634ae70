"""Finds mistakes of every installed plugin, for ``enginehouse plugins check``."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.metadata import EntryPoint, entry_points

import click
import msgspec

from enginehouse import ConfigError, PluginError
from enginehouse_kit.checks import check_without_effects
from enginehouse_kit.plugin_manager import (
    COMMANDS,
    GROUP,
    LoadedPlugins,
    PluginOrigin,
    PluginSettings,
    Registered,
    Registry,
    collect,
    describe,
    installed_plugins,
    misplaced,
)


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
        yield _entry_fault(
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
            yield _entry_fault(
                entry_point, f"the command belongs to no plugin: its distribution has none in '{package}'"
            )


def _entry_fault(entry_point: EntryPoint, problem: str) -> PluginError:
    distribution = entry_point.dist
    named = {"distribution": distribution.name, "version": distribution.version} if distribution else {}
    return PluginError(problem, plugin=entry_point.name, **named)


def _hook_faults(origin: PluginOrigin, loaded: LoadedPlugins) -> Iterator[str]:
    if not any(entry.entry_point == origin.entry_point for entry in loaded.registry.all()):
        yield f"it registers nothing: implement a hook such as 'register_filters', marked with '@{GROUP}.hookimpl'"


class PluginFault(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake of one plugin, with its remedy."""

    plugin: str
    distribution: str
    version: str
    problem: str

    def __str__(self) -> str:
        origin = {"plugin": self.plugin, "distribution": self.distribution, "version": self.version}
        return str(PluginError(self.problem, **origin))


class CheckedPlugins(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``enginehouse plugins check``. ``plugins`` and ``types`` count the usable ones.

    ``untried``: types that were not tried, because their checks act or they need parameters.
    """

    ok: bool
    plugins: int
    types: int
    faults: list[PluginFault]
    warnings: list[str]
    untried: list[str]


def check_plugins(own: Mapping[str, click.Command]) -> CheckedPlugins:
    """Load and check every installed plugin. ``own`` are Enginehouse's own commands."""
    loaded = collect(PluginSettings())
    types = loaded.registry.all()
    problems = [*(broken.problem for broken in loaded.broken), *audit(loaded, partial(misplaced, commands=own))]
    slow: list[str] = []
    untried: list[str] = []
    for entry in types:
        if not entry.bundled:  # bundled types are checked by Enginehouse's own tests
            problems += _conformance_faults(loaded.registry, entry, slow, untried)
    faults = [_fault(problem) for problem in problems]
    return CheckedPlugins(
        ok=not faults,
        plugins=len(loaded.plugins),
        types=len(types),
        faults=faults,
        warnings=slow,
        untried=untried,
    )


def _fault(error: PluginError) -> PluginFault:
    return PluginFault(
        plugin=error.plugin, distribution=error.distribution, version=error.version, problem=error.problem
    )


def _conformance_faults(
    registry: Registry, entry: Registered, slow: list[str], untried: list[str]
) -> Iterator[PluginError]:
    """Make the type and run the check of its kind. A type that needs parameters is for its plugin's own tests."""
    named = f"{entry.kind} '{entry.type}'"
    if _needs_parameters(entry):
        untried.append(named)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if not _check(registry, entry):
                untried.append(named)
        except ConfigError:  # it can only be made with parameters
            untried.append(named)
        except PluginError as error:
            yield error
        except AssertionError as error:
            yield entry.error(f"the {named} breaks a rule: {error}")
        except (Exception, SystemExit) as error:
            yield entry.error(f"the {named} failed in the check of its kind: {describe(error)}")
    slow += [f"{entry}: {each.message}" for each in caught if each.category.__name__ == "SlowPluginWarning"]


def _check(registry: Registry, entry: Registered) -> bool:
    """Whether the type has been tried, not only made."""
    registry.create(entry.kind, entry.type)
    return check_without_effects(entry.kind, partial(registry.create, entry.kind, entry.type))


def _needs_parameters(entry: Registered) -> bool:
    config = getattr(entry.factory, "Config", None)
    return config is not None and any(field.required for field in msgspec.structs.fields(config))
