"""Facts about installed plugins, found without importing them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, PackageMetadata, entry_points, version
from importlib.util import find_spec
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

_CODE = (".py", ".so", ".pyd")
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


def may_have(module: str, word: str) -> bool:
    """Whether a file of the package of ``module`` has ``word`` in it. ``True`` if there are none that can be read."""
    files = list(_files_around(module))
    return not files or any(word.encode() in file.read_bytes() for file in files)


@dataclass(frozen=True, kw_only=True)
class PluginOrigin:
    """Where a plugin comes from: its entry point, the module behind that, and the installed distribution."""

    entry_point: str
    module: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"plugin '{self.entry_point}' from {self.distribution} {self.version}"

    @property
    def bundled(self) -> bool:
        return self.distribution == GROUP

    def error(self, problem: str) -> PluginError:
        """A ``PluginError`` that names this plugin."""
        return PluginError(problem, distribution=self.distribution, version=self.version, plugin=self.entry_point)

    def failure(self, problem: str, error: BaseException) -> PluginError:
        """The same for an ``error`` that its code raised: with the file and the line."""
        return self.error(f"{problem} {describe(error)}{raised_at(error, self.module)}")


class InstalledCommand(NamedTuple):
    """A command that a plugin offers, with its entry point."""

    name: str
    origin: PluginOrigin
    point: EntryPoint

    def make(self, parameters: Mapping[str, Any] | None = None) -> click.Command:
        """The command. Its entry point names a click command, or what makes one of ``parameters``.

        Raises ``PluginError`` if it cannot be imported or made, and ``ConfigError`` for wrong parameters.
        """
        if not self.origin.bundled and (unmet := unmet_requirement(self.point.dist)):
            raise self.origin.error(unmet)
        try:
            found = self.point.load()
            if not isinstance(found, click.Command):
                found = self._made_by(found, parameters or {})
        except EnginehouseError:
            raise
        except (Exception, SystemExit) as error:
            raise self.origin.failure(f"the command '{self.name}' cannot be made:", error) from error
        if not isinstance(found, click.Command):
            raise self.origin.error(f"the command '{self.name}' is not a click command: {shown(found)}")
        return found

    def _made_by(self, factory: Any, parameters: Mapping[str, Any]) -> object:
        from enginehouse.config.parameters import decode_parameters  # only commands with parameters need msgspec

        owner = f"command '{self.name}' of {self.origin}"
        config = getattr(factory, "Config", None)
        decoded = decode_parameters(config, parameters, table=f"plugins.{self.name}", owner=owner)
        return factory() if decoded is None else factory(decoded)


class InstalledPlugin(NamedTuple):
    """A plugin as its distribution describes it, with the commands in its package."""

    origin: PluginOrigin
    point: EntryPoint
    commands: list[InstalledCommand]

    def allowed(self, settings: PluginSettings) -> bool:
        """Whether ``[plugins]`` lets it take part."""
        name, enabled = self.origin.entry_point, settings.enabled
        return name not in settings.disabled and (self.origin.bundled or enabled is None or name in enabled)


def installed_plugins() -> list[InstalledPlugin]:
    """All plugins: bundled ones first, then the others by name."""
    points = entry_points()
    commands: dict[tuple[Distribution | None, str], list[EntryPoint]] = {}
    for point in points.select(group=COMMANDS):
        commands.setdefault((point.dist, _package(point)), []).append(point)
    described: dict[Distribution | None, PackageMetadata] = {}  # each look at a distribution's metadata parses it again
    found = []
    for point in points.select(group=GROUP):
        assert point.dist is not None, "entry points of an environment have a distribution"
        if point.dist not in described:
            described[point.dist] = point.dist.metadata
        named = described[point.dist]
        origin = PluginOrigin(
            entry_point=point.name, module=point.module, distribution=named["Name"], version=named["Version"]
        )
        own = commands.pop((point.dist, _package(point)), ())  # of the first plugin, if the package has several
        found.append(InstalledPlugin(origin, point, [InstalledCommand(each.name, origin, each) for each in own]))
    return sorted(found, key=lambda plugin: (not plugin.origin.bundled, plugin.origin.entry_point))


def _package(entry_point: EntryPoint) -> str:
    return entry_point.module.partition(".")[0]


def _files_around(module: str) -> Iterator[Path]:
    """The code of the package of ``module``, found without importing it."""
    spec = find_spec(module.partition(".")[0])
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        yield from (file for file in Path(folder).rglob("*") if file.suffix in _CODE)
    if not spec.submodule_search_locations and spec.origin is not None and Path(spec.origin).suffix in _CODE:
        yield Path(spec.origin)
