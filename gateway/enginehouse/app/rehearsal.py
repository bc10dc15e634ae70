"""Builds everything that a gateway starts with, and starts nothing: for ``enginehouse check``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from enginehouse.app.gateway import Gateway
from enginehouse.config.schema import Config
from enginehouse.engines.state_file import StateFile
from enginehouse.plugin_manager.registry import Registry


def rehearse_start(config: Config, registry: Registry) -> None:
    """Raise the error that keeps a gateway with ``config`` from starting: ``ConfigError`` or ``PluginError``.

    No process, probe or request is started, and nothing remains on disk.
    """
    asyncio.run(_build(config, registry))  # a loop, because plugins may ask for the time while they are prepared


async def _build(config: Config, registry: Registry) -> None:
    with TemporaryDirectory() as folder:
        state_file = StateFile(Path(folder))
        try:
            Gateway(config, registry).build_hosts(state_file)
        finally:
            state_file.close()
