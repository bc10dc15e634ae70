"""The types that plugins registered, and how instances of them are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.config.decode import did_you_mean
from enginehouse.domain.errors import ConfigError, EnginehouseError, PluginError
from enginehouse.domain.foreign import describe
from enginehouse.plugin_manager.kinds import KINDS, faults

_MISSING = re.compile(r"Object missing required field `(.*)`")
_INTERFACES = {kind.name: kind.interface for kind in KINDS}


class PluginOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plugin comes from: its entry point, the module behind that, and the installed distribution."""

    entry_point: str
    module: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"plugin '{self.entry_point}' from {self.distribution} {self.version}"

    @property
    def bundled(self) -> bool:
        """Whether the plugin is part of Enginehouse."""
        return self.distribution == "enginehouse"

    def error(self, problem: str) -> PluginError:
        """A ``PluginError`` that names this plugin."""
        return PluginError(problem, distribution=self.distribution, version=self.version, plugin=self.entry_point)


class Registered(PluginOrigin, frozen=True, kw_only=True):
    """One type that a plugin registered. ``factory`` is a class, or a function that returns an instance."""

    kind: str
    type: str
    factory: Any

    def __str__(self) -> str:
        return f"{self.kind} '{self.type}' of plugin '{self.entry_point}' ({self.distribution} {self.version})"


class Registry:
    """Every registered type, by kind, in the order of registration."""

    def __init__(self) -> None:
        self._types: dict[str, dict[str, Registered]] = {kind.name: {} for kind in KINDS}

    def add(self, offered: Sequence[Registered]) -> None:
        """Add all types of one plugin, or none.

        Raises ``PluginError`` if another plugin registered one of them already.
        """
        seen = {(entry.kind, entry.type): entry for entry in self.all()}
        for entry in offered:
            if other := seen.get((entry.kind, entry.type)):
                raise entry.error(
                    f"the {entry.kind} '{entry.type}' is already registered by plugin '{other.entry_point}' "
                    f"from {other.distribution} {other.version}"
                )
            seen[entry.kind, entry.type] = entry
        for entry in offered:
            self._types[entry.kind][entry.type] = entry

    def types(self, kind: str) -> tuple[str, ...]:
        """The types of ``kind``. Raises ``KeyError`` for an unknown kind."""
        return tuple(self._types[kind])

    def all(self) -> tuple[Registered, ...]:
        """Every registered type, kind by kind."""
        return tuple(entry for types in self._types.values() for entry in types.values())

    def get(self, kind: str, type: str, key: str = "") -> Registered:
        """The registered ``type``. Raises ``ConfigError``, naming the configuration key ``key``, if there is none."""
        types = self._types[kind]
        if type not in types:
            remedy = closest(type, types, "known") if types else f"no {kind} is installed"
            raise ConfigError(f"unknown {kind} '{type}'", key=key, remedy=remedy)
        return types[type]

    def create(
        self, kind: str, type: str, parameters: Mapping[str, Any] | None = None, key: str = "", table: str = ""
    ) -> Any:
        """A new instance with the given parameters.

        Raises ``ConfigError`` for an unknown type, which the configuration key ``key`` names, and for wrong parameters,
        which stand below ``table``. Raises ``PluginError`` if the plugin fails to make an instance.
        """
        entry = self.get(kind, type, key)
        arguments = _arguments(entry, parameters or {}, table or key)
        try:
            instance = entry.factory(*arguments)
        except EnginehouseError:
            raise
        except (Exception, SystemExit) as error:
            raise entry.error(f"the {kind} '{type}' cannot be made: {describe(error)}") from error
        if problems := "; ".join(faults(_INTERFACES[kind], instance.__class__)):
            raise entry.error(f"the {kind} '{type}' is not a {kind}: {problems}")
        return instance


def closest(name: str, known: Iterable[str], what: str) -> str:
    """The remedy for a name that is not in ``known``; ``what`` introduces the list of known names."""
    names = list(known)
    return f"{did_you_mean(name, names)} {what}: {', '.join(names)}".lstrip()


def _arguments(entry: Registered, parameters: Mapping[str, Any], table: str) -> tuple[Any, ...]:
    """The factory's arguments: its decoded ``Config``, or none."""
    config = getattr(entry.factory, "Config", None)
    known = [field.encode_name for field in msgspec.structs.fields(config)] if config else []
    for name in parameters:
        if name not in known:
            remedy = closest(name, known, "known") if known else "it takes no parameters"
            raise ConfigError(f"unknown parameter '{name}' of the {entry}", key=_join(table, name), remedy=remedy)
    if config is None:
        return ()
    try:
        return (msgspec.convert(dict(parameters), config),)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        where = path.rstrip("`")
        if missing := _MISSING.fullmatch(problem):
            name = _join(where, missing[1])
            remedy = f"add '{name}' to [{table}]" if table else ""
            raise ConfigError(f"is missing; the {entry} needs it", key=_join(table, name), remedy=remedy) from error
        of = f"parameter '{where}' of" if where else "parameters of"
        raise ConfigError(f"{of} the {entry}: {problem}", key=_join(table, where)) from error


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)
