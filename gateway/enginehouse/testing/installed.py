"""The installed plugins: their list, and instances created as the gateway creates them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.listing import Row, rows
from enginehouse.plugin_manager.registry import Registry
from enginehouse.testing.checks.by_kind import CHECKS


def installed_plugins() -> list[Row]:
    """The rows of ``enginehouse plugins list``. Raises ``PluginError`` if a plugin cannot be used."""
    return rows(load_plugins(PluginSettings()))


def create(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """Create an instance of a registered type, as the gateway would: ``create("scorer", "my_scorer", {"size": 3})``.

    Plugins are loaded at the first call. Raises ``ConfigError`` for an unknown type and for wrong parameters.
    """
    return _registry(tuple(sys.path)).create(kind, type, parameters)


def check_type(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> None:
    """Run the conformance check of its kind on a registered type: ``check_type("scorer", "my_scorer")``.

    Raises ``AssertionError`` with the rule that the plugin breaks.
    """
    CHECKS[kind](lambda: create(kind, type, parameters))


@lru_cache(maxsize=1)
def _registry(path: tuple[str, ...]) -> Registry:
    """The types of the plugins on the import path. A check makes hundreds of instances, and loading takes 20 ms."""
    return load_plugins(PluginSettings()).registry
