"""What the kit uses of the plugin manager, and instances created as the gateway creates them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from enginehouse.cli.plugin_commands import misplaced as misplaced
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import Config
from enginehouse.config.schema import PluginSettings as PluginSettings
from enginehouse.domain.foreign import describe as describe
from enginehouse.plugin_manager.discovery import LoadedPlugins as LoadedPlugins
from enginehouse.plugin_manager.discovery import collect as collect
from enginehouse.plugin_manager.discovery import load_plugins as load_plugins
from enginehouse.plugin_manager.installed import COMMANDS as COMMANDS
from enginehouse.plugin_manager.installed import GROUP as GROUP
from enginehouse.plugin_manager.installed import PluginOrigin as PluginOrigin
from enginehouse.plugin_manager.installed import installed_plugins as installed_plugins
from enginehouse.plugin_manager.kinds import KINDS as KINDS
from enginehouse.plugin_manager.kinds import Kind as Kind
from enginehouse.plugin_manager.kinds import faults as faults
from enginehouse.plugin_manager.known_plugins import known_plugins as known_plugins
from enginehouse.plugin_manager.registry import Registered as Registered
from enginehouse.plugin_manager.registry import Registry as Registry


def configured_plugins(file: Path | None) -> PluginSettings:
    """``[plugins]`` of ``file``, else of the configuration that is found. Raises ``ConfigError``."""
    return load_config(file, os.environ).config.plugins


def default_table(name: str) -> Any:
    """The table ``[name]`` of an empty configuration."""
    return getattr(Config(), name)


def create(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """Create an instance of a registered type, as the gateway would: ``create("scorer", "my_scorer", {"size": 3})``.

    Plugins are loaded at the first call. Raises ``ConfigError`` for an unknown type and for wrong parameters.
    """
    return _registry(tuple(sys.path)).create(kind, type, parameters)


def factories(kind: str) -> Mapping[str, Any]:
    """What makes instances of the types of ``kind``, by type."""
    return _registry(tuple(sys.path)).factories(kind)


@lru_cache(maxsize=1)
def _registry(path: tuple[str, ...]) -> Registry:
    """The types of the plugins on the import path. A check makes hundreds of instances, and loading takes 20 ms."""
    return load_plugins(PluginSettings()).registry
