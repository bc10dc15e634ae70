"""The installed plugins, for tests: the list that people see, and instances made as the gateway makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginehouse.config.schema import Plugins
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.listing import Row, rows


def installed_plugins() -> list[Row]:
    """The rows of ``enginehouse plugins list``. Raises ``PluginError`` if a plugin cannot be used."""
    return rows(load_plugins(Plugins()))


def create(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """An instance of an installed plugin's type, as configuration would make it: ``create("scorer", "my_scorer")``.

    Raises ``ConfigError`` for an unknown type and for wrong parameters.
    """
    return load_plugins(Plugins()).registry.create(kind, type, parameters)
