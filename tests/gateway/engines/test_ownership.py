"""Engines while one gateway takes over from another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from enginehouse.domain.errors import ShuttingDown
from enginehouse.engines.ownership import EngineOwnership, OwnedLauncher
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Exit, Launcher, LaunchLine
from enginehouse.telemetry.log_ring import LogRing
from tests.support.waiting import settled, within

LINE = LaunchLine(command=("engine",), port=1)


class Engine(EngineProcess):
    address = "http://127.0.0.1:1"
    handle: Mapping[str, Any] = {"pid": 1}

    def __init__(self) -> None:
        self.stopped: list[float] = []

    async def exited(self) -> Exit:
        return Exit(status=0)

    async def memory(self) -> int | None:
        return 5

    async def stop(self, timeout: float) -> None:
        self.stopped.append(timeout)


class Engines(Launcher):
    """Launches ``engine`` once ``free`` is set."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.launched = 0
        self.free = asyncio.Event()

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        self.launched += 1
        await self.free.wait()
        return self.engine

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        return self.engine


def test_a_pause_waits_for_a_launch_in_progress_and_holds_back_the_next() -> None:
    async def run() -> None:
        engines, ownership = Engines(), EngineOwnership()
        launcher = OwnedLauncher(engines, ownership)
        first = asyncio.ensure_future(launcher.launch("a", LINE, LogRing()))
        await settled(lambda: engines.launched)
        pause = asyncio.ensure_future(ownership.pause())
        second = asyncio.ensure_future(launcher.launch("b", LINE, LogRing()))
        await settled(lambda: engines.launched)
        assert engines.launched == 1
        assert not pause.done()
        assert not ownership.held
        engines.free.set()
        await within(pause)
        assert (await first).handle == {"pid": 1}
        ownership.resume()
        await within(second)
        assert engines.launched == 2

    asyncio.run(run())


def test_an_engine_that_was_given_up_runs_on() -> None:
    async def run() -> None:
        engines, ownership = Engines(), EngineOwnership()
        launcher = OwnedLauncher(engines, ownership)
        process = await launcher.adopt("a", LINE, {}, LogRing())
        assert process is not None
        await process.stop(3.0)
        assert engines.engine.stopped == [3.0]
        await ownership.pause()
        stopping = asyncio.ensure_future(process.stop(4.0))
        launching = asyncio.ensure_future(launcher.launch("b", LINE, LogRing()))
        ownership.give_up()
        await within(stopping)
        with pytest.raises(ShuttingDown, match="taken over"):
            await launching
        assert engines.engine.stopped == [3.0]
        assert await process.memory() == 5

    asyncio.run(run())
