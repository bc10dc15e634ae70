"""Builds everything that a gateway starts with, and starts nothing: for ``enginehouse check``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from enginehouse.app.build import warn_of_missing
from enginehouse.app.gateway import Gateway
from enginehouse.config.schema import Config
from enginehouse.engines.state_file import StateFile
from enginehouse.plugin_manager.registry import Registry


def rehearse_start(config: Config, registry: Registry) -> Config:
    """The configuration as a gateway with ``config`` uses it.

    Raises the error that keeps the gateway from starting: ``ConfigError`` or ``PluginError``. No process, probe or
    request is started, and nothing remains on disk.
    """
    return asyncio.run(_build(config, registry))  # a loop, because plugins may ask for the time while they are prepared


async def _build(config: Config, registry: Registry) -> Config:
    with TemporaryDirectory() as folder:
        state_file = StateFile(Path(folder))
        try:
            gateway = Gateway(config, registry)
            gateway.build_hosts(state_file)
            await warn_of_missing(gateway.current.context)
            return gateway.config
        finally:
            state_file.close()
