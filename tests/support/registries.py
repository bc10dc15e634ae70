"""Registries of plugins with another one in place of a bundled one."""

from __future__ import annotations

from typing import Any

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered, Registry


def registry_with(kind: str, type: str, factory: Any, *, instead_of: str) -> Registry:
    """All bundled plugins but ``instead_of``, and the plugin ``acme`` with one type."""
    registry = load_plugins(PluginSettings(disabled=[instead_of])).registry
    registry.add([of_acme(kind, type, factory)])
    return registry


def of_acme(kind: str, type: str, factory: Any) -> Registered:
    """A type of the plugin ``acme``."""
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    return Registered(kind=kind, type=type, factory=factory, **origin)
