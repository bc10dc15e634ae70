"""Reloads that fail leave nothing to the garbage collector, which runs seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from enginehouse.app import Gateway
from enginehouse.app.reload import ConfigSource
from enginehouse.config.environment import STATE_DIR
from enginehouse.config.load_config import LoadedConfig, load_config
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.plugin_manager.discovery import load_plugins
from tests.support.garbage import left_behind, without_collector


def unreadable() -> LoadedConfig:
    raise ConfigError("it is unreadable")


def malformed(text: str, folder: Path) -> Callable[[], LoadedConfig]:
    file = folder / "enginehouse.toml"
    file.write_text(text)
    return lambda: load_config(file, {})


def unusable() -> LoadedConfig:
    broken = msgspec.convert({"backends": {"a": {"url": "http://a", "driver": "none such"}}}, Config)
    return LoadedConfig(broken, None, ())


@pytest.mark.parametrize(
    "read", [unreadable, unusable, "[server", '[server]\nport = "none"', '[server]\nport = "none"\nhost = 1']
)
async def test_a_failed_reload_leaves_no_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[], LoadedConfig] | str
) -> None:
    if isinstance(read, str):
        read = malformed(read, tmp_path)
    monkeypatch.setenv(STATE_DIR, str(tmp_path))
    gateway = Gateway(Config(), load_plugins(PluginSettings()).registry, source=ConfigSource(read, None))
    await gateway.start()
    await gateway.settled()

    async def fail() -> None:
        with pytest.raises(EnginehouseError):
            await gateway.reloader.reload()
        await asyncio.sleep(0)

    await asyncio.create_task(fail())  # the task of a test is none of the interpreter's own in Python 3.10
    with without_collector():
        await asyncio.create_task(fail())
        left = left_behind()
    await gateway.stop()
    assert not left
