"""Checks every installed plugin, for ``enginehouse plugins check``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import partial

import click
import msgspec

from enginehouse import ConfigError, PluginError
from enginehouse_kit.checks import check_without_effects
from enginehouse_kit.installed.audit import audit
from enginehouse_kit.plugin_manager import PluginSettings, Registered, Registry, collect, describe, misplaced


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
    """The result of ``enginehouse plugins check``. ``plugins`` and ``types`` count the usable ones."""

    ok: bool
    plugins: int
    types: int
    faults: list[PluginFault]
    warnings: list[str]


def check_plugins(own: Mapping[str, click.Command]) -> CheckedPlugins:
    """Load and check every installed plugin. ``own`` are Enginehouse's own commands."""
    loaded = collect(PluginSettings())
    types = loaded.registry.all()
    problems = [*(broken.problem for broken in loaded.broken), *audit(loaded, partial(misplaced, commands=own))]
    slow: list[str] = []
    for entry in types:
        if not entry.bundled:  # bundled types are checked by Enginehouse's own tests
            problems += _conformance_faults(loaded.registry, entry, slow)
    faults = [_fault(problem) for problem in problems]
    return CheckedPlugins(ok=not faults, plugins=len(loaded.plugins), types=len(types), faults=faults, warnings=slow)


def _fault(error: PluginError) -> PluginFault:
    return PluginFault(
        plugin=error.plugin, distribution=error.distribution, version=error.version, problem=error.problem
    )


def _conformance_faults(registry: Registry, entry: Registered, slow: list[str]) -> Iterator[PluginError]:
    """Make the type and run the check of its kind. A type that needs parameters is for its plugin's own tests."""
    if _needs_parameters(entry):
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _check(registry, entry)
        except ConfigError:  # it can only be made with parameters
            return
        except PluginError as error:
            yield error
        except AssertionError as error:
            yield entry.error(f"the {entry.kind} '{entry.type}' breaks a rule: {error}")
        except (Exception, SystemExit) as error:
            yield entry.error(f"the {entry.kind} '{entry.type}' failed in the check of its kind: {describe(error)}")
    slow += [f"{entry}: {each.message}" for each in caught if each.category.__name__ == "SlowPluginWarning"]


def _check(registry: Registry, entry: Registered) -> None:
    registry.create(entry.kind, entry.type)
    check_without_effects(entry.kind, partial(registry.create, entry.kind, entry.type))


def _needs_parameters(entry: Registered) -> bool:
    config = getattr(entry.factory, "Config", None)
    return config is not None and any(field.required for field in msgspec.structs.fields(config))
