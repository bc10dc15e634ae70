from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.drivers import EngineClient
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import Sleepers, StateFile
from enginehouse.errors import LoadFailed, NotEnoughMemory
from enginehouse.interfaces.driver_support import support_of
from enginehouse.scheduling.host_engines import EngineControl
from tests.support.bare_host import BareHost, address_of
from tests.support.fake_engines import FakeClient, FakeLauncher, FakeProcess, ScriptedDriver
from tests.support.virtual_time import Run

STOPPED, STARTING, READY = ReplicaState.STOPPED, ReplicaState.STARTING, ReplicaState.READY
SLEEPING, STOPPING, FAILED = ReplicaState.SLEEPING, ReplicaState.STOPPING, ReplicaState.FAILED


class Stage:
    """A host with the replicas ``a@a`` and ``b@b``, and all that it deals with."""

    def __init__(self, driver: ScriptedDriver, client: FakeClient, launcher: FakeLauncher, folder: Path) -> None:
        self.driver = driver
        self.launcher = launcher
        self.folder = folder
        self.client = client
        self.models = {
            "a": ModelSettings(command="engine --port ${port}", start_timeout=60, stop_timeout=7),
            "b": ModelSettings(command="engine", idle="sleep"),
        }
        self.states: list[tuple[str, ReplicaState]] = []
        self.examined: list[str] = []
        self.exited: list[str] = []
        self.connected: list[tuple[str, str]] = []
        self.files: list[StateFile] = []

    def gateway(self) -> BareHost:
        """A gateway's part that looks after this host; the one before is out of it as if it was killed."""
        before, self.folder = self.folder, self.folder / "next"
        self.folder.mkdir()
        if self.files:
            for file in before.glob("*.json"):
                shutil.copy(file, self.folder)
        self.files.append(StateFile(self.folder))
        host = BareHost(
            self.launcher,
            self.files[-1],
            {
                f"{name}@{name}": ManagedReplica(name, name, model, support_of(self.driver))
                for name, model in self.models.items()
            },
            self._connect,
        )
        self.states, self.examined, self.exited = host.changes, host.examined, host.exited
        return host

    def of(self, replica: str) -> list[ReplicaState]:
        return [state for name, state in self.states if name == replica]

    def remembered(self) -> set[str]:
        return set(self.files[-1].records)

    def _connect(self, backend: str, address: str) -> FakeClient:
        self.connected.append((backend, address))
        return self.client


@pytest.fixture
def stage(driver: ScriptedDriver, fake_launcher: FakeLauncher, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(driver, FakeClient({}), fake_launcher, tmp_path)
    yield stage
    for file in stage.files:
        file.close()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_first_pauses_after_failures_are_waited_out(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        stage.driver.verdict = False
        engines = stage.gateway()
        for pause in (1.0, 2.0):
            with pytest.raises(LoadFailed, match="was not ready"):
                await engines.start("a@a")
            began = now()
            async with engines.prepared("a@a", []):
                pass
            assert now() - began == pytest.approx(pause)
        with pytest.raises(LoadFailed, match="was not ready"):
            await engines.start("a@a")
        with pytest.raises(LoadFailed, match="failed 3 times in a row and is not tried again for 4 s"):
            async with engines.prepared("a@a", []):
                pass

    in_virtual_time(scenario())


def test_an_engine_launched_again_takes_as_many_requests_as_before(in_virtual_time: Run, stage: Stage) -> None:
    class Slow(type(stage.driver)):  # type: ignore[misc]
        async def concurrency(self, engine: EngineClient) -> int | None:
            await asyncio.sleep(3)
            return self.limit  # type: ignore[no-any-return]

    async def scenario() -> None:
        stage.driver = Slow()
        stage.driver.limit, begun = 4, now()
        engines = stage.gateway()
        await engines.start("a@a")
        assert now() - begun == pytest.approx(3), "its first limit is waited for"
        await engines.stop("a@a", None)
        again = now()
        await engines.start("a@a")
        assert now() - again == pytest.approx(0)
        assert (engines.reported, stage.examined) == ({"a@a": 4}, ["a@a", "a@a"])
        await engines.stop("a@a", None)

    in_virtual_time(scenario())


def test_an_engine_whose_memory_is_not_known_is_measured_at_its_next_start(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("a@a")
        await engines.stop("a@a", None)
        engines.measured.clear()  # as if it could not be measured, or its files had changed
        await engines.start("a@a")
        assert engines.measured == {"a@a": 1000}
        await engines.stop("a@a", None)

    in_virtual_time(scenario())


def test_a_ready_engine_counts_as_examined_even_if_nobody_waits_for_it_any_more(
    in_virtual_time: Run, stage: Stage
) -> None:
    class Silent(type(stage.driver)):  # type: ignore[misc]
        async def concurrency(self, engine: EngineClient) -> int | None:
            await asyncio.sleep(3)
            return 4

    async def scenario() -> None:
        stage.driver = Silent()
        engines = stage.gateway()
        starting = asyncio.ensure_future(engines.start("a@a"))
        await asyncio.sleep(1)
        assert (engines.states()["a@a"], stage.examined) == (READY, [])
        starting.cancel()
        await asyncio.wait({starting})
        assert stage.examined == ["a@a"]
        await engines.stop("a@a", None)

    in_virtual_time(scenario())


def test_an_engine_is_started_measured_and_stopped(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        seen_by_its_scheduler: EngineControl = engines
        assert seen_by_its_scheduler.states() == {"a@a": STOPPED, "b@b": STOPPED}
        await seen_by_its_scheduler.start("a@a")
        assert seen_by_its_scheduler.states() == {"a@a": READY, "b@b": STOPPED}
        assert engines.measured == {"a@a": 1000}
        assert set(stage.connected) == {("a", address_of(engines.engines["a@a"]))}
        assert stage.remembered() == {"a"}
        await engines.start("a@a")
        await engines.stop("a@a", 3)
        assert stage.launcher.launched[0].stops == [3]
        assert stage.remembered() == set()
        await engines.stop("a@a", None)

    in_virtual_time(scenario())
    assert stage.of("a@a") == [STARTING, READY, STOPPING, STOPPED]
    assert stage.exited == []


def test_memory_is_measured_again_now_and_then_and_the_most_counts(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        await engines.open()
        await engines.start("a@a")
        await engines.start("b@b")
        process = stage.launcher.launched[0]
        seen = []
        for memory in (3000, 2000, OSError("gone"), None):
            process.bytes = memory
            await asyncio.sleep(31)
            seen.append(engines.measured["a@a"])
        assert seen == [3000] * 4
        assert engines.measured["b@b"] == 1000
        await engines.close()
        assert engines.measured["a@a"] == 3000, "it is known for the next time"

    in_virtual_time(scenario())


def test_a_crash_is_reported_and_the_next_request_restarts_it_at_once_but_only_the_first_time(
    in_virtual_time: Run, stage: Stage
) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("a@a")
        stage.launcher.prints = b"CUDA error\n"
        stage.launcher.launched[-1].end.set_result(134)
        await asyncio.sleep(0.01)
        assert stage.exited == ["a@a"]
        await engines.start("a@a")
        for failures, pause in enumerate((2, 4), start=2):
            stage.launcher.launched[-1].end.set_result(134)
            await asyncio.sleep(0.01)
            assert stage.exited == ["a@a"] * failures
            assert engines.states()["a@a"] is FAILED
            began = now()
            with pytest.raises(
                LoadFailed, match=f"is not tried again for {pause} s: The engine ended with status 134"
            ) as caught:
                await engines.start("a@a")
            assert now() == began
            assert caught.value.retry_after == pause
            await asyncio.sleep(pause)
            await engines.start("a@a")

    in_virtual_time(scenario())


def test_a_failed_start_backs_off_as_well_but_one_that_was_stopped_does_not(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        stage.driver.verdict = False
        with pytest.raises(LoadFailed, match="not ready within 60 s"):
            await engines.start("a@a")
        with pytest.raises(LoadFailed, match="'a@a' failed once and is not tried again for 1 s"):
            await engines.start("a@a")
        assert stage.exited == [], "the caller of start knows it already"
        await asyncio.sleep(1)
        starting = asyncio.ensure_future(engines.start("a@a"))
        await asyncio.sleep(1)
        await engines.stop("a@a", None)
        with pytest.raises(LoadFailed, match="was stopped while it started"):
            await starting
        stage.driver.verdict = True
        await engines.start("a@a")

    in_virtual_time(scenario())


def test_an_engine_that_lacked_memory_is_tried_again_once_some_was_given_back(
    in_virtual_time: Run, stage: Stage
) -> None:
    async def fails_to_start(engines: BareHost) -> None:
        stage.launcher.prints, stage.driver.verdict = b"out of memory\n", False
        starting = asyncio.ensure_future(engines.start("a@a"))
        while not starting.done():  # just after a stop there are more tries
            await asyncio.sleep(0.01)
            if not stage.launcher.launched[-1].end.done():
                stage.launcher.launched[-1].end.set_result(1)
        with pytest.raises(NotEnoughMemory, match="out of memory"):
            await starting

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        await fails_to_start(engines)
        began = now()
        async with engines.prepared("a@a", ["b@b"]):
            pass
        assert now() == began, "the memory that is lacking is freed"
        with pytest.raises(LoadFailed, match=r"not tried again for 1 s: .*out of memory"):
            await engines.start("a@a")
        await engines.stop("b@b", None)
        await fails_to_start(engines)
        with pytest.raises(LoadFailed, match="not tried again for 2 s"):
            await engines.start("a@a")

    in_virtual_time(scenario())


def test_an_engine_that_ends_before_its_memory_is_known_did_not_start(in_virtual_time: Run, stage: Stage) -> None:
    stage.launcher.delay = 1

    async def scenario() -> None:
        stage.driver.verdict = False
        engines = stage.gateway()
        starting = asyncio.ensure_future(engines.start("a@a"))
        await asyncio.sleep(1.01)
        stage.launcher.launched[0].exits_when_measured = True
        stage.driver.verdict = True
        with pytest.raises(LoadFailed, match="exited as soon as it was ready: The engine ended with status 1"):
            await starting

    in_virtual_time(scenario())


def test_a_start_waits_for_the_stop_before_it(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("a@a")
        stage.launcher.launched[0].stop_s = 5
        stopping = asyncio.ensure_future(engines.stop("a@a", None))
        await asyncio.sleep(1)
        await engines.start("a@a")
        assert now() > 5
        await stopping

    in_virtual_time(scenario())
    assert stage.of("a@a") == [STARTING, READY, STOPPING, STOPPED, STARTING, READY]


def test_a_stop_goes_on_when_nobody_waits_for_it_any_more(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("a@a")
        stage.launcher.launched[0].stop_s = 5
        stopping = asyncio.ensure_future(engines.stop("a@a", None))
        await asyncio.sleep(1)
        stopping.cancel()
        await asyncio.sleep(5)

    in_virtual_time(scenario())
    assert stage.of("a@a")[-1] is STOPPED
    assert stage.remembered() == set()


def test_a_configuration_that_cannot_be_launched_fails_the_load(in_virtual_time: Run, stage: Stage) -> None:
    stage.models["a"] = ModelSettings(command="engine ${prot}")

    async def scenario() -> None:
        engines = stage.gateway()
        with pytest.raises(LoadFailed, match=r"'a@a' cannot be launched: models.a.command"):
            await engines.start("a@a")
        with pytest.raises(LoadFailed, match=r"'a@a' cannot be launched: models.a.command"):
            async with engines.prepared("a@a", ["b@b"]):
                pass

    in_virtual_time(scenario())


# --- sleep


def test_an_idle_engine_sleeps_and_wakes_where_its_model_says_so(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = stage.driver.wakes = True

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        engines.rest(["b@b"])
        assert engines.states()["b@b"] is STOPPING, "from this moment on it takes no requests"
        await asyncio.sleep(1)
        assert engines.states()["b@b"] is SLEEPING
        assert stage.exited == ["b@b"]
        await engines.start("b@b")
        assert len(stage.launcher.launched) == 1
        assert stage.driver.asked == ["sleep", "wake"]
        await engines.stop("b@b", None)

    in_virtual_time(scenario())
    assert stage.of("b@b") == [STARTING, READY, STOPPING, SLEEPING, STARTING, READY, STOPPING, STOPPED]


def test_an_idle_engine_is_stopped_where_it_is_not_to_sleep(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = True

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("a@a")
        engines.rest(["a@a"])
        engines.rest(["a@a"])
        await asyncio.sleep(1)
        assert stage.launcher.launched[0].stops == [7]
        engines.rest(["a@a"])
        await asyncio.sleep(1)

    in_virtual_time(scenario())
    assert stage.driver.asked == []
    assert stage.of("a@a") == [STARTING, READY, STOPPING, STOPPED]
    assert stage.exited == ["a@a"]


@pytest.mark.parametrize("answer", [False, OSError("no such page")])
def test_an_engine_that_cannot_sleep_is_stopped(answer: Any, in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = answer

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        engines.rest(["b@b"])
        await asyncio.sleep(1)

    in_virtual_time(scenario())
    assert stage.of("b@b") == [STARTING, READY, STOPPING, STOPPED]


@pytest.mark.parametrize("answer", [False, OSError("no such page")])
def test_an_engine_that_cannot_be_woken_is_launched_anew(answer: Any, in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = True
    stage.driver.wakes = answer

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        engines.rest(["b@b"])
        await asyncio.sleep(1)
        await engines.start("b@b")
        assert [process.end.done() for process in stage.launcher.launched] == [True, False]

    in_virtual_time(scenario())
    assert stage.of("b@b")[-2:] == [STARTING, READY]


def test_a_request_for_an_engine_that_is_falling_asleep_wakes_it(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = stage.driver.wakes = True

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        stage.driver.delay = 2
        engines.rest(["b@b"])
        await asyncio.sleep(1)
        await engines.start("b@b")

    in_virtual_time(scenario())
    assert stage.of("b@b")[-4:] == [STOPPING, SLEEPING, STARTING, READY]
    assert len(stage.launcher.launched) == 1


def test_an_engine_that_is_stopped_while_it_falls_asleep_is_stopped(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = True

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        stage.driver.delay = 2
        stage.launcher.launched[0].stop_s = 5
        engines.rest(["b@b"])
        await asyncio.sleep(1)
        await engines.stop("b@b", None)
        assert stage.launcher.launched[0].end.done()

    in_virtual_time(scenario())
    assert stage.of("b@b") == [STARTING, READY, STOPPING, STOPPED]


def test_a_sleeping_engine_that_ends_is_reported(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = True

    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        engines.rest(["b@b"])
        await asyncio.sleep(1)
        stage.launcher.launched[0].end.set_result(-9)
        await asyncio.sleep(1)

    in_virtual_time(scenario())
    assert stage.of("b@b")[-2:] == [SLEEPING, FAILED]
    assert stage.exited == ["b@b", "b@b"]


# --- adoption


def killed(stage: Stage, *replicas: str) -> Coroutine[Any, Any, BareHost]:
    """A gateway starts engines and is killed: they run on."""

    async def gateway() -> BareHost:
        engines = stage.gateway()
        for replica in replicas:
            await engines.start(replica)
        stage.launcher.running = {process.address: process for process in stage.launcher.launched}
        return engines

    return gateway()


def test_an_engine_that_still_runs_is_adopted_and_not_launched(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a")
        engines = stage.gateway()
        await engines.open()
        assert engines.states()["a@a"] is READY
        assert address_of(engines.engines["a@a"]) == stage.launcher.launched[0].address
        assert engines.measured == {"a@a": 1000}
        await engines.start("a@a")
        assert len(stage.launcher.launched) == 1
        stage.launcher.launched[0].end.set_result(None)
        await asyncio.sleep(1)
        assert engines.engines["a@a"].problem == "The engine ended by itself"
        assert stage.remembered() == set()

    in_virtual_time(scenario())
    assert stage.of("a@a") == [STARTING, READY, FAILED]
    assert stage.exited == ["a@a"]


def test_an_adopted_engines_port_is_not_handed_out(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a")
        engines = stage.gateway()
        await engines.open()
        assert engines._launches._ports._taken == {stage.launcher.lines[0].port}
        await engines.stop("a@a", None)
        assert engines._launches._ports._taken == set()

    in_virtual_time(scenario())


def test_an_engine_that_is_still_loading_is_joined(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a")
        stage.driver.verdict = False
        engines = stage.gateway()
        await engines.open()
        assert now() < 3, "it is not waited for"
        assert engines.states()["a@a"] is STARTING
        joining = [asyncio.ensure_future(engines.start("a@a")) for _ in range(2)]
        await asyncio.sleep(1)
        joining[0].cancel()
        await asyncio.sleep(1)
        stage.driver.verdict = True
        await joining[1]
        assert engines.states()["a@a"] is READY
        assert len(stage.launcher.launched) == 1

    in_virtual_time(scenario())


def test_an_adopted_engine_that_never_gets_ready_is_stopped_and_reported(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a")
        stage.driver.verdict = False
        engines = stage.gateway()
        await engines.open()
        with pytest.raises(LoadFailed, match="is not tried again for 1 s"):
            await engines.start("a@a")
        assert stage.launcher.launched[0].end.done()

    in_virtual_time(scenario())
    assert stage.of("a@a") == [STARTING, FAILED]
    assert stage.exited == ["a@a"]
    assert stage.remembered() == set()


def test_an_engine_that_would_be_launched_differently_now_stops_before_anything_starts(
    in_virtual_time: Run, stage: Stage
) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a", "b@b")
        stage.models["a"] = ModelSettings(command="engine --port ${port} --quick", stop_timeout=7)
        del stage.models["b"]
        engines = stage.gateway()
        await engines.open()
        assert [process.end.done() for process in stage.launcher.launched] == [True, True]
        assert engines.states() == {"a@a": STOPPED}
        assert stage.remembered() == set()

    in_virtual_time(scenario())


@pytest.mark.parametrize("change", [{"env": {"TOKEN": "new"}}, {"args": ["-v"]}, {"command": "engine ${prot}"}])
def test_any_change_of_the_launch_counts(change: dict[str, Any], in_virtual_time: Run, stage: Stage) -> None:
    options: dict[str, Any] = {"command": "engine", "env": {"TOKEN": "old-secret"}}
    stage.models["a"] = ModelSettings(**options)

    async def scenario() -> None:
        await killed(stage, "a@a")
        assert "old-secret" not in (stage.folder / "engines.json").read_text()
        stage.models["a"] = ModelSettings(**{**options, **change})
        await stage.gateway().open()
        assert stage.launcher.launched[0].end.done()

    in_virtual_time(scenario())


def test_changes_of_anything_else_do_not_count(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a")
        stage.models["a"] = ModelSettings(command="engine --port ${port}", ttl=60, priority=3, stop_command="stop")
        engines = stage.gateway()
        await engines.open()
        assert engines.states()["a@a"] is READY

    in_virtual_time(scenario())


def test_the_record_of_an_engine_that_exited_is_removed(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a")
        stage.launcher.running.clear()
        engines = stage.gateway()
        await engines.open()
        assert engines.states()["a@a"] is STOPPED
        assert stage.remembered() == set()
        await engines.start("a@a")
        assert stage.remembered() == {"a"}

    in_virtual_time(scenario())


def test_a_model_that_a_server_had_loaded_stays_as_long_as_an_earlier_gateway_uses_it(
    in_virtual_time: Run, stage: Stage
) -> None:
    async def scenario() -> None:
        engines, process = stage.gateway(), FakeProcess("http://server")
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await engines.open(drained)
        engines.found("a@a", process)
        await engines.start("a@a")
        evicted = asyncio.ensure_future(engines.evict("a@a"))
        await asyncio.sleep(1)
        assert not process.stops
        drained.set_result(None)
        await evicted
        assert process.stops
        await engines.close()

    in_virtual_time(scenario())


def test_an_adopted_engine_that_sleeps_is_woken(in_virtual_time: Run, stage: Stage) -> None:
    stage.driver.sleeps = stage.driver.wakes = True

    async def scenario() -> None:
        engines = await killed(stage, "b@b")
        engines.rest(["b@b"])
        await asyncio.sleep(1)
        engines = stage.gateway()
        await engines.open()
        assert stage.driver.asked == ["sleep", "wake"]
        assert engines.states()["b@b"] is READY
        engines = stage.gateway()
        await engines.open()
        assert stage.driver.asked == ["sleep", "wake"], "it is awake now"

    in_virtual_time(scenario())


def test_an_adopted_engine_that_is_awake_is_left_alone(in_virtual_time: Run, stage: Stage) -> None:
    """SGLang crashes if it is woken while it is awake."""

    async def scenario() -> None:
        await killed(stage, "b@b")
        engines = stage.gateway()
        await engines.open()
        assert stage.driver.asked == []
        assert engines.states()["b@b"] is READY

    in_virtual_time(scenario())


@pytest.mark.parametrize("content", ["[1]", "nonsense"])
def test_a_list_of_sleepers_that_cannot_be_read_is_begun_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "asleep.json").write_text(content)
    sleepers = Sleepers(tmp_path)
    assert "b" not in sleepers.names
    sleepers.follow("b", ReplicaState.STOPPING, may_sleep=True)
    assert "b" in Sleepers(tmp_path).names


def test_closing_stops_every_engine_whatever_it_does(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        await killed(stage, "a@a")
        stage.driver.verdict = False
        engines = stage.gateway()
        await engines.open()
        loading = asyncio.ensure_future(engines.start("b@b"))
        await asyncio.sleep(1)
        await engines.close()
        assert engines.states() == {"a@a": STOPPED, "b@b": STOPPED}
        assert [process.end.done() for process in stage.launcher.launched] == [True, True]
        assert stage.remembered() == set()
        with pytest.raises(LoadFailed):
            await loading

    in_virtual_time(scenario())


def test_a_model_that_cannot_be_launched_stops_no_other_one(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        await engines.start("b@b")
        stage.launcher.lacks = "there is no program 'engine' on the PATH"
        with pytest.raises(LoadFailed, match="'a' did not start: there is no program 'engine' on the PATH"):
            async with engines.prepared("a@a", ["b@b"]):
                raise AssertionError("it is not prepared")
        assert engines.states() == {"a@a": FAILED, "b@b": READY}

    in_virtual_time(scenario())


def test_memory_is_measured_on_when_a_replica_was_removed_meanwhile(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        engines = stage.gateway()
        engines.begin()
        await engines.start("a@a")
        await engines.start("b@b")
        first = stage.launcher.launched[0]

        async def remove_other() -> int:
            first.memory = never  # type: ignore[method-assign]
            await engines.stop("b@b", None)
            engines.remove("b@b")
            return 2000

        async def never() -> int:
            return 3000

        first.memory = remove_other  # type: ignore[method-assign]
        await asyncio.sleep(35)
        assert "b@b" not in engines.states()
        await asyncio.sleep(35)
        assert engines.measured["a@a"] == 3000
        await engines.close()

    in_virtual_time(scenario())
