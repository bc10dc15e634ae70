"""The installed plugins, loaded once for each process of the tests."""

from __future__ import annotations

from functools import cache

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry


@cache
def installed_plugins() -> Registry:
    """The types of the installed plugins. Tests that add a type load a registry of their own."""
    return load_plugins(PluginSettings()).registry
