"""Engines, their processes and their launchers, played by objects: a test decides what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from enginehouse import Driver, Launcher
from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.config.schema import CheckSettings
from enginehouse.drivers import EngineClient, EngineResponse, ServedModel, SupportsFigures, SupportsSleep, support_of
from enginehouse.errors import UpstreamError
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, LaunchLine


class FakeClient:
    """An engine that answers from a table: a path has JSON (status 200), a status, or an exception.

    ``asked``: the paths of requests; ``bodies``: those that they had.
    """

    def __init__(self, pages: Mapping[str, Any]) -> None:
        self.pages = dict(pages)
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.last = ""

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        self.asked.append(path)
        if body:
            self.bodies.append(msgspec.json.decode(body))
        page = self.pages.get(path, 404)
        if isinstance(page, Exception):
            raise page
        self.last = f"{method} {path} answered {page if isinstance(page, int) else 200}"
        if isinstance(page, int):
            return EngineResponse(page, [], b"{}")
        return EngineResponse(200, [], page if isinstance(page, bytes) else msgspec.json.encode(page))

    async def follow(self, path: str, on_event: Callable[[bytes], None]) -> None:
        raise UpstreamError("it has no events")


class ScriptedDriver(Driver, SupportsFigures, SupportsSleep):
    """Answers as the test says; each answer but the list of models takes ``delay`` seconds."""

    def __init__(self) -> None:
        self.verdict: bool | Exception = True
        self.served: list[ServedModel] | Exception = []
        self.delay = 0.0
        self.sleeps: bool | Exception = False
        self.wakes: bool | Exception = False
        self.limit: int | Exception | None = None
        self.asked: list[str] = []
        self.health_checks: list[float] = []
        self.discoveries: list[float] = []

    async def healthy(self, engine: EngineClient) -> bool:
        self.health_checks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.delay)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    async def concurrency(self, engine: EngineClient) -> int | None:
        if isinstance(self.limit, Exception):
            raise self.limit
        return self.limit

    async def sleep(self, engine: EngineClient) -> bool:
        return await self._answer("sleep", self.sleeps)

    async def wake(self, engine: EngineClient) -> bool:
        return await self._answer("wake", self.wakes)

    async def _answer(self, question: str, answer: bool | Exception) -> bool:
        self.asked.append(question)
        await asyncio.sleep(self.delay)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def models(self, engine: EngineClient) -> list[ServedModel]:
        self.discoveries.append(asyncio.get_running_loop().time())
        if isinstance(self.served, Exception):
            raise self.served
        return self.served


def running_engines(drivers: Mapping[str, Any]) -> Any:
    """The hosts' view of backends that run, each with the driver of its name."""
    fleet = Fleet(CheckSettings(), lambda: 0.0)
    for name in drivers:
        fleet.add(BackendInfo(name=name, url="http://engine", driver=name))
    supports = {name: support_of(driver) for name, driver in drivers.items()}
    outside = SimpleNamespace(clock=SYSTEM_CLOCK)
    return SimpleNamespace(fleet=fleet, upstreams=dict.fromkeys(drivers), drivers=supports, outside=outside)


class FakeProcess(EngineProcess):
    """Exits when ``end`` gets its status, or a whole ``Exit``.

    ``stop`` takes ``stop_s`` seconds and returns a little after the exit.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.handle = {"address": address}
        self.end: asyncio.Future[int | Exit | None] = asyncio.get_running_loop().create_future()
        self.stops: list[float] = []
        self.stop_s = 0.0
        self.bytes: int | Exception | None = 1000
        self.exits_when_measured = False
        self.pids: list[int] = []

    async def memory(self) -> int | None:
        if self.exits_when_measured:
            self.end.set_result(1)
            await asyncio.sleep(1)
        if isinstance(self.bytes, Exception):
            raise self.bytes
        return self.bytes

    async def processes(self) -> list[int]:
        return self.pids

    async def exited(self) -> Exit:
        ended = await asyncio.shield(self.end)
        return ended if isinstance(ended, Exit) else Exit(status=ended)

    async def stop(self, timeout: float) -> None:
        self.stops.append(timeout)
        await asyncio.sleep(self.stop_s)
        if not self.end.done():
            self.end.set_result(0)
        await asyncio.sleep(0.1)


class FakeLauncher(Launcher):
    """``running``: the engines that an earlier gateway left, by address. ``takes``: bytes of each launched one.

    ``processes``: their ids. ``lacks``: what keeps engines from being launched.
    """

    def __init__(self) -> None:
        self.running: dict[str, FakeProcess] = {}
        self.lines: list[LaunchLine] = []
        self.launched: list[FakeProcess] = []
        self.prints = b""
        self.takes = 1000
        self.processes: list[int] = []
        self.delay = 0.0
        self.lacks = ""

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        return self.lacks

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        await asyncio.sleep(self.delay)
        output.write(self.prints)
        self.lines.append(line)
        process = FakeProcess(f"http://127.0.0.1:{line.port}")
        process.bytes = self.takes
        process.pids = self.processes
        self.launched.append(process)
        return process

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        return self.running.get(handle["address"])
