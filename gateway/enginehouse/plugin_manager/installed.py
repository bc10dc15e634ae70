"""Facts about installed plugins, found without importing them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, EntryPoint, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from enginehouse.domain.errors import EnginehouseError, PluginError
from enginehouse.domain.foreign import describe, raised_at, shown

if TYPE_CHECKING:
    from enginehouse.config.schema import PluginSettings  # commands start without msgspec

GROUP = "enginehouse"
"""The entry-point group of plugins."""
COMMANDS = "enginehouse.commands"
"""The entry-point group of their commands."""

_OWN = re.compile(r"enginehouse\s*(?![-\w.])", re.IGNORECASE)


def unmet_requirement(distribution: Distribution | None) -> str:
    """The problem if ``distribution`` requires another version of Enginehouse than the installed one, else ``""``."""
    for text in distribution.requires or () if distribution else ():
        if not _OWN.match(text):
            continue
        from packaging.requirements import Requirement  # 15 ms, and only for plugins of others

        requirement, installed = Requirement(text), version("enginehouse")
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(installed, prereleases=True):
            return (
                f"it requires enginehouse{requirement.specifier}, but {installed} is installed: "
                f"install a version of '{distribution.name if distribution else ''}' for {installed}"
            )
    return ""


def has_words(module: str, words: Iterable[str]) -> bool:
    """Whether the source of ``module`` contains all ``words``. ``True`` if the source cannot be read."""
    source = _source(module)
    return source is None or all(word.encode() in source for word in words)


@cache
def is_bundled(distribution: Distribution | None) -> bool:
    """Whether a plugin comes with the gateway. Each look at a distribution's metadata parses it again."""
    return distribution is not None and distribution.name == GROUP


def is_allowed(plugin: str, bundled: bool, settings: PluginSettings) -> bool:
    """Whether ``[plugins]`` lets the plugin with that entry point take part."""
    return plugin not in settings.disabled and (bundled or settings.enabled is None or plugin in settings.enabled)


class InstalledCommand(NamedTuple):
    """A command that a plugin offers: its words, the entry point of the plugin, and its own."""

    name: str
    plugin: EntryPoint
    entry_point: EntryPoint

    @property
    def bundled(self) -> bool:
        return is_bundled(self.plugin.dist)

    def error(self, problem: str) -> PluginError:
        """A ``PluginError`` that names the plugin."""
        origin = self.plugin.dist
        named = {"distribution": origin.name, "version": origin.version} if origin else {}
        return PluginError(problem, plugin=self.plugin.name, **named)

    def make(self, parameters: Mapping[str, Any] | None = None) -> click.Command:
        """The command. Its entry point names a click command, or what makes one of ``parameters``.

        Raises ``PluginError`` if it cannot be imported or made, and ``ConfigError`` for wrong parameters.
        """
        if not self.bundled and (unmet := unmet_requirement(self.plugin.dist)):
            raise self.error(unmet)
        try:
            found = self.entry_point.load()
            if not isinstance(found, click.Command):
                found = self._made_by(found, parameters or {})
        except EnginehouseError:
            raise
        except (Exception, SystemExit) as error:
            place = raised_at(error, self.entry_point.module)
            raise self.error(f"the command '{self.name}' cannot be made: {describe(error)}{place}") from error
        if not isinstance(found, click.Command):
            raise self.error(f"the command '{self.name}' is not a click command: {shown(found)}")
        return found

    def _made_by(self, factory: Any, parameters: Mapping[str, Any]) -> object:
        from enginehouse.config.parameters import decode_parameters  # only commands with parameters need msgspec

        owner = f"command '{self.name}' of plugin '{self.plugin.name}'"
        config = getattr(factory, "Config", None)
        decoded = decode_parameters(config, parameters, table=f"plugins.{self.name}", owner=owner)
        return factory() if decoded is None else factory(decoded)


def installed_commands() -> list[InstalledCommand]:
    """The commands of plugins, the bundled ones first."""
    return installed()[1]


def installed() -> tuple[list[EntryPoint], list[InstalledCommand]]:
    """All plugins, and their commands: a command is of the plugin whose package has its module. Bundled ones first."""
    found = entry_points()
    plugins = sorted(found.select(group=GROUP), key=lambda plugin: (not is_bundled(plugin.dist), plugin.name))
    owners = {(plugin.dist, _package(plugin)): plugin for plugin in plugins}
    order = {plugin: place for place, plugin in enumerate(plugins)}
    commands = [
        InstalledCommand(command.name, owners[command.dist, _package(command)], command)
        for command in found.select(group=COMMANDS)
        if (command.dist, _package(command)) in owners
    ]
    return plugins, sorted(commands, key=lambda command: order[command.plugin])


def _package(entry_point: EntryPoint) -> str:
    return entry_point.module.partition(".")[0]


def _source(module: str) -> bytes | None:
    """The source of ``module``, found without importing it or the packages around it."""
    parts, path = module.split("."), None
    for length in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:length]), path)
        if spec is None:
            return None
        path, origin = spec.submodule_search_locations, spec.origin
    if origin is None or not origin.endswith(".py"):
        return None
    return Path(origin).read_bytes()
