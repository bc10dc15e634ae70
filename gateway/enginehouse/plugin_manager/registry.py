"""The types that plugins registered, and how instances of them are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginehouse.config.parameters import closest, decode_parameters
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.domain.foreign import defined_at
from enginehouse.plugin_manager.installed import PluginOrigin
from enginehouse.plugin_manager.kinds import KINDS, faults
from enginehouse.plugin_manager.known_plugins import how_to_get

_INTERFACES = {kind.name: kind.interface for kind in KINDS}


@dataclass(frozen=True, kw_only=True)
class Registered(PluginOrigin):
    """One type that a plugin registered. ``factory`` is a class, or a function that returns an instance."""

    kind: str
    type: str
    factory: Any

    def __str__(self) -> str:
        return f"{self.kind} '{self.type}' of plugin '{self.entry_point}' ({self.distribution} {self.version})"


class Registry:
    """Every registered type, by kind, in the order of registration. ``disabled``: plugins whose types are not here."""

    def __init__(self, disabled: Sequence[str] = ()) -> None:
        self._disabled = disabled
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

    def factories(self, kind: str) -> Mapping[str, Any]:
        """What makes instances of the types of ``kind``, by type."""
        return {type: entry.factory for type, entry in self._types[kind].items()}

    def all(self) -> tuple[Registered, ...]:
        """Every registered type, kind by kind."""
        return tuple(entry for types in self._types.values() for entry in types.values())

    def get(self, kind: str, type: str, key: str = "") -> Registered:
        """The registered ``type``. Raises ``ConfigError``, naming the configuration key ``key``, if there is none."""
        types = self._types[kind]
        if type not in types:
            noun = kind.replace("_", " ")
            remedy = closest(type, types, "known") if types else f"no {noun} is installed"
            if found := how_to_get(kind, type, types):
                remedy = f"{found}; installed: {', '.join(types) or 'none'}"
            if self._disabled:
                remedy += f"; disabled plugins: {', '.join(self._disabled)}"
            raise ConfigError(f"unknown {noun} '{type}'", key=key, remedy=remedy)
        return types[type]

    def create(
        self, kind: str, type: str, parameters: Mapping[str, Any] | None = None, key: str = "", table: str = ""
    ) -> Any:
        """A new instance with the given parameters.

        Raises ``ConfigError`` for an unknown type, which the configuration key ``key`` names, and for wrong parameters,
        which stand below ``table``. Raises ``PluginError`` if the plugin fails to make an instance.
        """
        entry = self.get(kind, type, key)
        config = getattr(entry.factory, "Config", None)
        decoded = decode_parameters(config, parameters or {}, table=table or key, owner=str(entry))
        try:
            instance = entry.factory() if decoded is None else entry.factory(decoded)
        except EnginehouseError:
            raise
        except (Exception, SystemExit) as error:
            raise entry.failure(f"the {kind} '{type}' cannot be made:", error) from error
        if not entry.bundled and (problems := "; ".join(faults(_INTERFACES[kind], instance.__class__))):
            place = defined_at(instance.__class__)
            raise entry.error(f"the {kind} '{type}' is not a {kind}: {problems}{place}")
        return instance
