"""The engines that this machine can launch, without any configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import psutil

from enginehouse import Launcher
from enginehouse.backends import ModelSettings
from enginehouse.config.schema import PluginSettings
from enginehouse.drivers import SupportsLaunch, support_of
from enginehouse.engines.launch_line import launch_line
from enginehouse.plugin_manager.discovery import load_plugins

_SHARE_OF_MEMORY = 0.8
"""Of main memory, for the engines; the rest is the system's."""


class InstalledEngines:
    """``drivers``: by type; by default all that are installed."""

    def __init__(self, drivers: Mapping[str, SupportsLaunch] | None = None) -> None:
        registry = load_plugins(PluginSettings()).registry
        self._launcher: Launcher = registry.create("launcher", "local")
        if drivers is None:
            drivers = {type: support_of(registry.create("driver", type)).launch for type in registry.types("driver")}
        self.drivers = drivers

    def missing(self, type: str, model: str, path: str) -> str:
        """The program that the launch of ``model`` by the driver ``type`` lacks; empty if none."""
        settings = ModelSettings(driver=type, path=path)
        line = launch_line(model, settings, self.drivers[type], 0, os.environ)
        return asyncio.run(self._launcher.why_not(line, ()))

    def memory(self) -> int:
        """The bytes that engines may take together: those of the GPUs, else most of main memory."""
        gpus = sum(gpu.total for gpu in self._launcher.gpus())
        return gpus or int(psutil.virtual_memory().total * _SHARE_OF_MEMORY)
