"""The installed plugins: their list, and instances created as the gateway creates them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.kinds import KINDS as KINDS
from enginehouse.plugin_manager.kinds import Kind as Kind
from enginehouse.plugin_manager.kinds import faults as faults
from enginehouse.plugin_manager.listing import Row as Row
from enginehouse.plugin_manager.listing import rows
from enginehouse.plugin_manager.registry import Registry


def installed_plugins() -> list[Row]:
    """The rows of ``enginehouse plugins list``. Raises ``PluginError`` if a plugin cannot be used."""
    return rows(load_plugins(PluginSettings()))


def create(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """Create an instance of a registered type, as the gateway would: ``create("scorer", "my_scorer", {"size": 3})``.

    Plugins are loaded at the first call. Raises ``ConfigError`` for an unknown type and for wrong parameters.
    """
    return _registry(tuple(sys.path)).create(kind, type, parameters)


@lru_cache(maxsize=1)
def _registry(path: tuple[str, ...]) -> Registry:
    """The types of the plugins on the import path. A check makes hundreds of instances, and loading takes 20 ms."""
    return load_plugins(PluginSettings()).registry
