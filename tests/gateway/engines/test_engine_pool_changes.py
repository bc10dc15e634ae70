"""Replicas that come, change and go while their host runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import StateFile
from enginehouse.errors import LoadFailed
from enginehouse.interfaces.driver_support import support_of
from tests.support.bare_host import BareHost
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver
from tests.support.virtual_time import Run

STOPPED, STARTING, READY = ReplicaState.STOPPED, ReplicaState.STARTING, ReplicaState.READY
STOPPING, FAILED, SLEEPING = ReplicaState.STOPPING, ReplicaState.FAILED, ReplicaState.SLEEPING


class Stage:
    """A host with the replica ``a@a``, whose engine is launched as ``one``."""

    def __init__(self, driver: ScriptedDriver, client: FakeClient, launcher: FakeLauncher, folder: Path) -> None:
        self.driver = driver
        self.launcher = launcher
        self.file = StateFile(folder)
        self.engines = BareHost(launcher, self.file, {"a@a": self.managed("one")}, lambda backend, address: client)
        self.exited = self.engines.exited

    def managed(self, command: str, **settings: Any) -> ManagedReplica:
        return ManagedReplica("a", "a", ModelSettings(command=command, **settings), support_of(self.driver))

    def relaunch(self, command: str, **settings: Any) -> None:
        self.engines.put("a@a", self.managed(command, **settings), relaunch=True)

    @property
    def shown(self) -> list[ReplicaState]:
        return [state for _, state in self.engines.changes]

    @property
    def state(self) -> ReplicaState:
        return self.engines.states()["a@a"]

    @property
    def commands(self) -> list[str]:
        return [line.command[0] for line in self.launcher.lines]


@pytest.fixture
def stage(driver: ScriptedDriver, fake_launcher: FakeLauncher, tmp_path: Path) -> Iterator[Stage]:
    async def made() -> Stage:  # the queue of a host, which these tests leave alone, needs an event loop
        return Stage(driver, FakeClient({}), fake_launcher, tmp_path)

    stage = asyncio.run(made())
    yield stage
    stage.file.close()


def test_an_engine_goes_on_with_settings_that_do_not_launch_it(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await stage.engines.start("a@a")
        stage.engines.put("a@a", stage.managed("one", stop_timeout=3), relaunch=False)
        assert stage.state is READY
        assert stage.engines.measured == {"a@a": 1000}
        await stage.engines.stop("a@a", None)
        assert stage.launcher.launched[0].stops == [3]

    in_virtual_time(scenario())
    assert stage.commands == ["one"]


def test_what_is_launched_differently_meanwhile_is_launched_anew_for_who_waits(
    in_virtual_time: Run, stage: Stage
) -> None:
    async def scenario() -> None:
        stage.driver.verdict = False
        start = asyncio.ensure_future(stage.engines.start("a@a"))
        await asyncio.sleep(5)
        stage.relaunch("two")
        stage.engines.retire("a@a")
        stage.launcher.launched[0].stop_s = 5
        stop = asyncio.ensure_future(stage.engines.stop("a@a", None))
        await asyncio.sleep(3)
        assert stage.commands == ["one"], "the first one has not stopped yet"
        stage.driver.verdict = True
        await asyncio.gather(start, stop)
        assert stage.state is READY
        assert stage.engines.measured == {"a@a": 1000}

    in_virtual_time(scenario())
    assert stage.commands == ["one", "two"]
    assert stage.exited == []


def test_an_engine_that_got_ready_as_it_was_is_not_what_is_wanted_any_more(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        stage.launcher.delay = 1
        start = asyncio.ensure_future(stage.engines.start("a@a"))
        await asyncio.sleep(0.5)
        stage.relaunch("two")
        stage.engines.retire("a@a")
        await start
        assert stage.state is READY

    in_virtual_time(scenario())
    assert stage.commands == ["one", "two"]
    assert stage.shown[:2] == [STARTING, STOPPING], "it shows as stopping from the change on"
    assert stage.shown.count(READY) == 1


def test_a_load_that_is_not_wanted_stays_cancelled(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        stage.driver.verdict = False
        start = asyncio.ensure_future(stage.engines.start("a@a"))
        await asyncio.sleep(5)
        stage.relaunch("two")
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await asyncio.sleep(100)

    in_virtual_time(scenario())
    assert stage.commands == ["one"]
    assert stage.state is STOPPED


def test_a_retired_replica_shows_as_stopping_until_its_engine_has_stopped(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await stage.engines.start("a@a")
        stage.engines.retire("a@a")
        assert stage.state is STOPPING
        assert stage.shown[-1] is READY, "it can still serve what it has"
        await stage.engines.stop("a@a", None)
        assert stage.state is STOPPED
        await stage.engines.start("a@a")
        assert stage.state is READY

    in_virtual_time(scenario())


def test_a_replica_at_rest_can_be_retired_and_stopped(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        stage.engines.retire("a@a")
        assert stage.state is STOPPING
        await stage.engines.stop("a@a", None)
        assert stage.state is STOPPED

    in_virtual_time(scenario())


def test_a_sleeper_is_not_woken_as_something_else(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = stage.driver.wakes = True

    async def scenario() -> None:
        stage.relaunch("one", idle="sleep")
        await stage.engines.start("a@a")
        stage.engines.rest(["a@a"])
        await asyncio.sleep(1)
        assert stage.state is SLEEPING
        stage.relaunch("two", idle="sleep")
        stage.engines.retire("a@a")
        await stage.engines.stop("a@a", None)
        await stage.engines.start("a@a")

    in_virtual_time(scenario())
    assert stage.commands == ["one", "two"]
    assert "wake" not in stage.driver.asked


def test_a_retired_engine_that_crashes_has_exited(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await stage.engines.start("a@a")
        stage.engines.retire("a@a")
        stage.launcher.launched[0].end.set_result(1)
        await asyncio.sleep(1)
        assert (stage.state, stage.exited) == (FAILED, ["a@a"])

    in_virtual_time(scenario())


def test_another_launch_line_is_tried_at_once_after_failures(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        stage.driver.verdict = False
        for _ in range(2):
            with pytest.raises(LoadFailed):
                await stage.engines.start("a@a")
        with pytest.raises(LoadFailed, match="is not tried again"):
            await stage.engines.start("a@a")
        stage.driver.verdict = True
        stage.relaunch("two")
        await stage.engines.start("a@a")

    in_virtual_time(scenario())
    assert stage.commands[-1] == "two"


def test_what_another_launch_line_takes_is_measured_anew(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await stage.engines.start("a@a")
        stage.relaunch("two")
        assert stage.engines.measured == {}
        stage.engines.retire("a@a")
        await stage.engines.stop("a@a", None)
        stage.launcher.takes = 10
        await stage.engines.start("a@a")
        assert stage.engines.measured == {"a@a": 10}

    in_virtual_time(scenario())


def test_a_removed_replica_cannot_be_started_and_comes_back_as_a_new_one(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        stage.driver.verdict = False
        start = asyncio.ensure_future(stage.engines.start("a@a"))
        await asyncio.sleep(5)
        stage.engines.retire("a@a")
        await stage.engines.stop("a@a", None)
        stage.engines.remove("a@a")
        with pytest.raises(LoadFailed):
            await start
        assert dict(stage.engines.states()) == {}
        await stage.engines.stop("a@a", None)
        with pytest.raises(LoadFailed, match="'a@a' is no longer configured"):
            await stage.engines.start("a@a")
        stage.driver.verdict = True
        stage.engines.put("a@a", stage.managed("two"), relaunch=False)
        await stage.engines.start("a@a")

    in_virtual_time(scenario())
    assert stage.commands == ["one", "two"]


def test_a_replica_is_not_started_before_its_name_is_free(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        after = asyncio.ensure_future(asyncio.sleep(30))
        stage.engines.put("b@b", stage.managed("two"), relaunch=False, after=after)
        start = asyncio.ensure_future(stage.engines.start("b@b"))
        await asyncio.sleep(29)
        assert stage.commands == []
        await start
        assert asyncio.get_running_loop().time() >= 30

    in_virtual_time(scenario())
    assert stage.commands == ["two"]
