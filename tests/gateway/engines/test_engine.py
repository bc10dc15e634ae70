from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from enginehouse import Launcher, ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launches import Ports
from enginehouse.errors import LoadFailed
from enginehouse.interfaces.cache_keepers import LaunchedBackend
from enginehouse.interfaces.driver_support import support_of
from tests.support.bare_host import Heard, address_of
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver
from tests.support.host_launchers import launches
from tests.support.launchers import local_launcher
from tests.support.virtual_time import Run
from tests.support.waiting import within

STOPPED, STARTING, READY = ReplicaState.STOPPED, ReplicaState.STARTING, ReplicaState.READY
STOPPING, FAILED = ReplicaState.STOPPING, ReplicaState.FAILED


class Stage:
    """A supervisor with all that it deals with."""

    def __init__(
        self,
        driver: ScriptedDriver,
        client: FakeClient,
        model: ModelSettings,
        launcher: FakeLauncher,
        launches_with: Launcher | None = None,
    ) -> None:
        self.driver = driver
        self.launcher = launcher
        self.states: list[ReplicaState] = []
        self.addresses: list[str] = []
        self.ports = Ports(25_000, 25_999)
        self.supervisor = Engine(
            ManagedReplica("tiny-1", "tiny", model, support_of(driver)),
            launches(launches_with or launcher, ports=self.ports), connect=self._connect,
            listener=Heard(self.states),
        )  # fmt: skip
        self._client = client

    def _connect(self, address: str) -> FakeClient:
        self.addresses.append(address)
        return self._client


@pytest.fixture
def stage(driver: ScriptedDriver, fake_launcher: FakeLauncher) -> Stage:
    return Stage(
        driver, FakeClient({}), ModelSettings(command="engine", start_timeout=60, stop_timeout=7), fake_launcher
    )


def test_an_engine_is_ready_when_its_driver_says_so(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await stage.supervisor.bring_up()
        assert address_of(stage.supervisor) == stage.addresses[0] == stage.launcher.launched[0].address

    in_virtual_time(scenario())
    assert stage.states == [STARTING, READY]
    assert stage.supervisor.problem == ""


def test_nobody_watches_an_engine_that_runs_on(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await stage.supervisor.bring_up()
        await stage.supervisor.leave()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert stage.launcher.launched[0].stops == []

    in_virtual_time(scenario())
    assert stage.states == [STARTING, READY]


def test_readiness_is_probed_soon_and_then_less_and_less_often(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.verdict = False

    async def scenario() -> None:
        starting = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(30)
        stage.driver.verdict = True
        await starting

    in_virtual_time(scenario())
    times = stage.driver.health_checks
    pauses = [after - before for before, after in pairwise(times)]
    assert times[0] == pytest.approx(0, abs=0.001)
    assert pauses[:-1] == pytest.approx(sorted(pauses[:-1]))
    assert len([time for time in times if time < 1]) >= 15
    assert max(pauses) == pytest.approx(0.1)


def test_a_readiness_probe_that_hangs_is_bounded_by_the_start_timeout(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.delay = 1e6
    stage.launcher.prints = b"loading tensors\nstill loading\n"

    async def scenario() -> None:
        with pytest.raises(LoadFailed, match=r"not ready within 60 s .* | still loading$") as caught:
            await stage.supervisor.bring_up()
        assert asyncio.get_running_loop().time() == pytest.approx(60.1)
        assert caught.value.details == {"model": "tiny", "log": ["loading tensors", "still loading"]}

    in_virtual_time(scenario())
    assert stage.states == [STARTING, FAILED]
    assert stage.launcher.launched[0].stops == [7]
    assert "not ready within 60 s (no answer to its health check" in stage.supervisor.problem


def test_a_launch_that_hangs_is_bounded_by_the_start_timeout(in_virtual_time: Run, stage: Stage) -> None:
    stage.launcher.delay = 1e6

    async def scenario() -> None:
        with pytest.raises(LoadFailed, match="could not be launched in that time"):
            await stage.supervisor.bring_up()
        assert asyncio.get_running_loop().time() == 60

    in_virtual_time(scenario())
    assert stage.states == [STARTING, FAILED]


def test_an_exit_during_start_fails_at_once_with_the_last_lines(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.verdict = False
    stage.launcher.prints = b"one\ntwo\nthree\nfour: no such model"

    async def scenario() -> None:
        starting = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(5)
        stage.launcher.launched[0].end.set_result(-9)
        with pytest.raises(LoadFailed) as caught:
            await starting
        assert asyncio.get_running_loop().time() == pytest.approx(5.1)
        assert caught.value.message == (
            "Model 'tiny' did not start: it ended by SIGKILL while it started; "
            "its last lines were: two | three | four: no such model"
        )
        assert list(caught.value.details["log"]) == ["one", "two", "three", "four: no such model"]

    in_virtual_time(scenario())
    assert stage.states == [STARTING, FAILED]


def test_an_exit_while_ready_is_reported_and_the_engine_can_be_started_again(
    in_virtual_time: Run, stage: Stage
) -> None:
    stage.launcher.prints = b"CUDA error\n"

    async def scenario() -> None:
        await stage.supervisor.bring_up()
        stage.launcher.launched[0].end.set_result(134)
        await asyncio.sleep(1)
        assert stage.supervisor.problem == "The engine ended with status 134; its last lines were: CUDA error"
        assert address_of(stage.supervisor) is None
        stage.launcher.prints = b""
        await stage.supervisor.bring_up()
        assert stage.supervisor.problem == ""
        for number, status in ((1, 1), (2, 0)):
            stage.launcher.launched[number].end.set_result(status)
            await asyncio.sleep(1)
            assert stage.supervisor.problem == f"The engine ended with status {status}"
            await asyncio.sleep(60)
            await stage.supervisor.bring_up()

    in_virtual_time(scenario())
    assert stage.states == [STARTING, *[READY, FAILED, STARTING] * 3, READY]
    assert stage.supervisor.log.tail(5) == ["CUDA error"]


def test_stopping_is_no_failure(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await stage.supervisor.bring_up()
        await stage.supervisor.stop(3)
        await asyncio.sleep(1)

    in_virtual_time(scenario())
    assert stage.states == [STARTING, READY, STOPPING, STOPPED]
    assert stage.launcher.launched[0].stops == [3]


@pytest.mark.parametrize("launch_s", [0, 10])
def test_stopping_while_it_starts_fails_the_start(launch_s: float, in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.verdict = False
    stage.launcher.delay = launch_s

    async def scenario() -> None:
        starting = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(5)
        await stage.supervisor.stop()
        with pytest.raises(LoadFailed, match="was stopped while it started"):
            await starting

    in_virtual_time(scenario())
    assert stage.states == [STARTING, STOPPING, STOPPED]
    assert [process.stops for process in stage.launcher.launched] == ([] if launch_s else [[7]])


def test_stopping_in_the_moment_it_becomes_ready_stops_it(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        starting = asyncio.ensure_future(stage.supervisor.bring_up())
        while (task := stage.supervisor._starting) is None:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        while not task.done():  # noqa: ASYNC110 - the moment before anybody hears of its end
            await asyncio.sleep(0)
        assert not starting.done()
        await stage.supervisor.stop()

    in_virtual_time(scenario())
    assert stage.states[-1] is STOPPED
    assert stage.launcher.launched[0].end.done()


@pytest.mark.parametrize(("seconds", "steps"), [*((0, n) for n in range(30)), (0.05, 0)])
def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing_behind(
    seconds: float, steps: int, in_virtual_time: Run, stage: Stage
) -> None:
    """The launcher hands its process over, and the engine becomes ready, within these steps of the event loop."""

    async def scenario() -> None:
        starting = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(seconds)
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled() is (stage.states[-1] is STOPPED)
        assert [process.end.done() for process in stage.launcher.launched] in ([], [starting.cancelled()])
        assert bool(stage.ports._taken) is not starting.cancelled()

    in_virtual_time(scenario())


def test_an_engine_whose_launch_nobody_waits_for_any_more_is_stopped(
    in_virtual_time: Run, driver: ScriptedDriver
) -> None:
    class Stubborn(FakeLauncher):
        async def launch(self, *args: Any) -> Any:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1e6)
            await asyncio.sleep(5)
            return await super().launch(*args)

    stage = Stage(driver, FakeClient({}), ModelSettings(command="engine", start_timeout=60), Stubborn())

    async def scenario() -> None:
        with pytest.raises(LoadFailed, match="could not be launched in that time"):
            await stage.supervisor.bring_up()
        await asyncio.sleep(10)
        assert stage.launcher.launched[0].end.done()

    in_virtual_time(scenario())
    assert stage.states == [STARTING, FAILED]


def test_a_cancelled_start_leaves_nothing_behind(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.verdict = False

    async def scenario() -> None:
        starting = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(5)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert stage.launcher.launched[0].end.done()

    in_virtual_time(scenario())
    assert stage.states == [STARTING, STOPPED]


def test_the_engine_goes_even_when_its_start_is_cancelled_twice(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.verdict = False

    async def scenario() -> None:
        starting = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(5)
        stage.launcher.launched[0].stop_s = 3
        for _ in range(2):
            starting.cancel()
            await asyncio.sleep(1)
        assert starting.done()
        await asyncio.sleep(5)
        assert stage.launcher.launched[0].end.done()

    in_virtual_time(scenario())


@pytest.mark.usefixtures("all_ports_are_free")
def test_a_port_is_free_again_when_its_engine_has_stopped(in_virtual_time: Run, stage: Stage) -> None:
    stage.ports.limit_to(25_000, 25_001)

    async def scenario() -> None:
        for end in (stage.supervisor.stop, None, stage.supervisor.stop, None):
            await stage.supervisor.bring_up()
            if end:
                await end()
            else:
                stage.launcher.launched[-1].end.set_result(1)
                await asyncio.sleep(60)  # the longest pause after a failure
        stage.driver.verdict = False
        for _ in range(3):
            with pytest.raises(LoadFailed, match="not ready within"):
                await stage.supervisor.bring_up()
            await asyncio.sleep(60)

    in_virtual_time(scenario())


def test_a_configuration_that_cannot_be_launched_is_told(
    in_virtual_time: Run, driver: ScriptedDriver, fake_launcher: FakeLauncher
) -> None:
    stage = Stage(driver, FakeClient({}), ModelSettings(command="engine ${prot}"), fake_launcher)

    async def scenario() -> None:
        with pytest.raises(LoadFailed, match=r"cannot be launched: models.tiny.command"):
            await stage.supervisor.bring_up()
        await stage.supervisor.stop()

    in_virtual_time(scenario())
    assert stage.states == [STARTING, FAILED]
    assert stage.supervisor.problem.startswith("models.tiny.command"), "an unload does not hide it"


def test_no_cache_is_kept_where_that_is_off(
    in_virtual_time: Run, driver: ScriptedDriver, fake_launcher: FakeLauncher, tmp_path: Path
) -> None:
    made: list[LaunchedBackend] = []
    stage = Stage(driver, FakeClient({}), ModelSettings(command="engine", keep_cache=0), fake_launcher)
    stage.supervisor.launches.caches.make_keeper = made.append

    async def scenario() -> None:
        await stage.supervisor.bring_up()
        await stage.supervisor.stop()

    in_virtual_time(scenario())
    assert not made


async def test_a_real_child_that_exits_during_start_fails_at_once(driver: ScriptedDriver, tmp_path: Path) -> None:
    driver.verdict = False
    fail = 'import sys; print("reading the model"); sys.exit("error: model not found")'
    model = ModelSettings(command=shlex.join([sys.executable, "-u", "-c", fail]), start_timeout=600)
    stage = Stage(driver, FakeClient({}), model, FakeLauncher(), local_launcher(tmp_path))
    with pytest.raises(LoadFailed, match="it ended with status 1 while it started") as caught:
        await within(stage.supervisor.bring_up())
    assert caught.value.details["log"] == ["reading the model", "error: model not found"]


async def test_a_real_child_that_is_killed_during_its_start_tells_the_signal(
    driver: ScriptedDriver, tmp_path: Path
) -> None:
    driver.verdict = False
    fail = "import os, signal; print('reading the model'); os.kill(os.getpid(), signal.SIGTERM)"
    model = ModelSettings(command=shlex.join([sys.executable, "-u", "-c", fail]), start_timeout=600)
    stage = Stage(driver, FakeClient({}), model, FakeLauncher(), local_launcher(tmp_path))
    with pytest.raises(LoadFailed, match=r"Model 'tiny' .* by SIGTERM while it started; .* reading the model"):
        await within(stage.supervisor.bring_up())
