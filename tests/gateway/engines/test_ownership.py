"""Engines while one gateway takes over from another."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import ShuttingDown
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import EngineOwnership
from enginehouse.interfaces.driver_support import support_of
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, LaunchLine
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver
from tests.support.host_launchers import launches
from tests.support.waiting import settled, within


class Engines(FakeLauncher):
    """Launches engines once ``free`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.free = asyncio.Event()

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        self.asked.append(name)
        await self.free.wait()
        return await super().launch(name, line, output)

    def supervisor(self, name: str, ownership: EngineOwnership) -> Engine:
        return Engine(
            ManagedReplica(name, name, ModelSettings(command="engine"), support_of(ScriptedDriver())),
            launches(self, ownership=ownership),
            connect=lambda _: FakeClient({}),
            listener=EngineListener(),
        )


async def test_a_pause_waits_for_a_launch_in_progress_and_holds_back_the_next() -> None:
    engines, ownership = Engines(), EngineOwnership()
    first = asyncio.ensure_future(engines.supervisor("a", ownership).bring_up())
    await settled(lambda: len(engines.asked))
    pause = asyncio.ensure_future(ownership.pause())
    second = asyncio.ensure_future(engines.supervisor("b", ownership).bring_up())
    await settled(lambda: len(engines.asked))
    assert engines.asked == ["a"]
    assert not pause.done()
    assert not ownership.held
    engines.free.set()
    await within(pause)
    await within(first)
    assert engines.asked == ["a"]
    ownership.resume()
    await within(second)
    assert engines.asked == ["a", "b"]


async def test_an_engine_that_was_given_up_runs_on() -> None:
    engines, ownership = Engines(), EngineOwnership()
    engines.free.set()
    kept, stopped = engines.supervisor("a", ownership), engines.supervisor("b", ownership)
    await kept.bring_up()
    await stopped.bring_up()
    await stopped.stop(3.0)
    assert [each.stops for each in engines.launched] == [[], [3.0]]
    await ownership.pause()
    stopping = asyncio.ensure_future(kept.stop(4.0))
    launching = asyncio.ensure_future(stopped.bring_up())
    await settled(lambda: kept.state is ReplicaState.STOPPING)
    ownership.give_up()
    await within(stopping)
    with pytest.raises(ShuttingDown, match="taken over"):
        await launching
    assert [each.stops for each in engines.launched] == [[], [3.0]]
    assert await engines.launched[0].memory() == 1000
