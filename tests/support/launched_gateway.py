"""A whole gateway in the test's event loop, whose engines are launched by a launcher of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from enginehouse import Launcher
from enginehouse.app import Gateway
from enginehouse.config.schema import Config
from enginehouse.engines.state_file import StateFile
from enginehouse.launchers import EngineOutput, EngineProcess, LaunchLine
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from tests.support.fake_engines import FakeLauncher, FakeProcess
from tests.support.served_gateway import ServedGateway, serve


class Process(FakeProcess):
    """Ends at once."""

    async def stop(self, timeout: float) -> None:
        self.end.set_result(0)


class Launches(FakeLauncher):
    """An engine that is ready as soon as it is launched."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        self.lines.append(line)
        return Process(self._url)


@asynccontextmanager
async def served(
    launcher: Launcher, folder: Path, models: Sequence[str] = ("m",), **more: object
) -> AsyncIterator[ServedGateway]:
    """A gateway whose ``models`` are launched by ``launcher``. ``more``: their settings."""
    settings = {"command": "engine --port ${port}", "health_path": "/health", **more}
    tables = {"hosts": {"local": {"launcher": "given"}}, "models": dict.fromkeys(models, settings)}
    config = msgspec.convert(tables, Config)
    registry = load_plugins(config.plugins).registry
    origin = {"entry_point": "given", "module": "given", "distribution": "given", "version": "1"}
    registry.add([Registered(kind="launcher", type="given", factory=lambda: launcher, **origin)])
    gateway = Gateway(config, registry)
    gateway.build_hosts(StateFile(folder))
    await gateway.start()
    served, server = await serve(gateway, "gateway")
    yield served
    for client in served.clients:
        client.close()
    server.close()
    await gateway.stop()
