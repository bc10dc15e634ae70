"""Changes of a configuration that a simulation tries out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from enginehouse import ConfigError, LoadedConfig
from enginehouse_sim.virtual.virtual_engines import VirtualEngines
from enginehouse_sim.virtual.virtual_gateway import VirtualGateway

_LAUNCHING = ("driver", "path", "command")


class VirtualSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a simulation makes to a configuration.

    Without ``file``, the gateway has one backend and default values. ``values`` has keys such as ``routing.strategy``
    with their values, both as text. ``instances`` is the number of engines for each model, in place of the configured
    one; remote backends that serve the same models are repeated in their order. ``seed``: of the strategy ``random``,
    if the configuration has none for it, and of all chance.
    """

    file: Path | None = None
    values: tuple[tuple[str, str], ...] = ()
    instances: int | None = None
    seed: int = 0

    def load(self) -> LoadedConfig:
        """The changed configuration. Raises ``ConfigError``."""
        return LoadedConfig.changed(self.file, self._change)

    def gateway(self, engines: VirtualEngines) -> VirtualGateway:
        """A virtual gateway with this configuration. Raises ``ConfigError`` or ``PluginError``."""
        return VirtualGateway.of(self.load(), engines, self.seed)

    def _change(self, document: dict[str, Any]) -> None:
        if self.file is None:
            document["backends"] = {"engine": {"url": "http://engine", "driver": "sim"}}
        document.setdefault("plugins", {}).setdefault("random", {}).setdefault("seed", self.seed)
        for key, text in self.values:
            _merge(document, _parsed(key, text))
        if self.instances is not None:
            _repeat_backends(document, self.instances)
            for model in _tables(document.get("models")):
                if any(key in model for key in _LAUNCHING):
                    model["replicas"] = self.instances


def _parsed(key: str, text: str) -> dict[str, Any]:
    """``key = text`` as a document. A text that is no TOML value is a string."""
    for value in (text, json.dumps(text)):
        with suppress(msgspec.DecodeError):
            return msgspec.toml.decode(f"{key} = {value}", type=dict[str, Any])
    raise ConfigError("is not the name of a key", key=key, remedy="write it as in the file: routing.strategy")


def _merge(document: dict[str, Any], change: dict[str, Any]) -> None:
    """Put the innermost tables of ``change`` into ``document``."""
    for key, value in change.items():
        inner = document.get(key)
        if isinstance(value, dict) and isinstance(inner, dict):
            _merge(inner, value)
        else:
            document[key] = value


def _repeat_backends(document: dict[str, Any], instances: int) -> None:
    backends = document.get("backends")
    if not isinstance(backends, dict):
        return
    groups: dict[str, list[str]] = {}
    for name, backend in backends.items():
        models = backend.get("models") if isinstance(backend, dict) else None
        groups.setdefault(repr(sorted(models or ())), []).append(name)
    repeated: dict[str, Any] = {}
    for names in groups.values():
        for number in range(instances):
            name, copy = names[number % len(names)], number // len(names) + 1
            repeated[f"{name}-{copy}" if copy > 1 else name] = backends[name]
    document["backends"] = repeated


def _tables(tables: Any) -> Iterable[dict[str, Any]]:
    return [table for table in tables.values() if isinstance(table, dict)] if isinstance(tables, dict) else ()
