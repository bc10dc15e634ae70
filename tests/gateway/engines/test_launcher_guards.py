"""What launchers and their processes raise and return: it is logged and blamed on them, and takes nothing down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from enginehouse import Launcher, ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.plugin_id import PluginId
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.gpus import Gpus
from enginehouse.engines.guards import guarded_launcher
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import EngineRecord, StateFile
from enginehouse.errors import LoadFailed, PluginFailed
from enginehouse.interfaces.driver_support import support_of
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, Gpu, LaunchLine
from enginehouse.telemetry.log_ring import LogRing
from tests.support.bare_host import BareHost
from tests.support.fake_engines import FakeClient, FakeLauncher, FakeProcess, ScriptedDriver
from tests.support.host_launchers import launches
from tests.support.unspeakable import Unspeakable, UnspeakableError
from tests.support.virtual_time import Run

LINE = LaunchLine(command=["engine"], port=25_000)
FAILURES: list[BaseException] = [KeyError("secret"), SystemExit(3), KeyboardInterrupt(), UnspeakableError()]


class Gives(Launcher):
    """Returns ``given`` for every engine, or raises it."""

    def __init__(self, given: object) -> None:
        self.given = given

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> Any:
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given

    async def adopt(self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput) -> Any:
        return await self.launch(name, line, output)


class Broken(FakeProcess):
    """Every method raises ``failure``, but ``stop`` first ends the process."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__("http://127.0.0.1:25000")
        self.failure = failure

    async def exited(self) -> Exit:
        raise self.failure

    async def memory(self) -> int | None:
        raise self.failure

    async def stop(self, timeout: float) -> None:
        self.stops.append(timeout)
        raise self.failure


def guarded(launcher: Launcher) -> Launcher:
    return guarded_launcher(PluginId("launcher", "acme", "acme-cloud"), launcher)


async def launched(process: EngineProcess) -> EngineProcess:
    return await guarded(Gives(process)).launch("a", LINE, LogRing())


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_what_a_launcher_raises_names_the_launcher_and_no_more(failure: BaseException) -> None:
    told = f"The launcher 'acme' of plugin 'acme-cloud' failed with {type(failure).__name__}"
    for work in (
        guarded(Gives(failure)).launch("a", LINE, LogRing()),
        guarded(Gives(failure)).adopt("a", LINE, {}, LogRing()),
    ):
        with pytest.raises(PluginFailed) as caught:
            await asyncio.ensure_future(work)
        assert str(caught.value) == told


async def test_an_error_of_enginehouse_passes() -> None:
    with pytest.raises(LoadFailed, match="no such program"):
        await guarded(Gives(LoadFailed("no such program"))).launch("a", LINE, LogRing())


@pytest.mark.parametrize("given", [None, 4711, Unspeakable()])
async def test_a_process_is_a_process(given: object) -> None:
    with pytest.raises(PluginFailed, match="from launch instead of EngineProcess"):
        await guarded(Gives(given)).launch("a", LINE, LogRing())


@pytest.mark.parametrize("handle", [None, 3, {"socket": object()}, {"it": Unspeakable()}])
async def test_a_handle_can_be_recorded(handle: Any) -> None:
    process = FakeProcess("http://127.0.0.1:1")
    process.handle = handle
    with pytest.raises(PluginFailed, match="launcher 'acme'"):
        await launched(process)
    assert process.stops == [5], "nobody else would stop it"


@pytest.mark.parametrize("failure", [None, *FAILURES], ids=lambda failure: type(failure).__name__)
async def test_a_process_whose_address_cannot_be_read_is_stopped(failure: BaseException | None) -> None:
    class Nowhere(FakeProcess):
        def __init__(self) -> None:
            super().__init__("http://127.0.0.1:1")
            del self.address

        async def stop(self, timeout: float) -> None:
            await super().stop(timeout)
            if failure is not None:
                raise failure

    process = Nowhere()
    for work in (launched(process), guarded(Gives(process)).adopt("a", LINE, {}, LogRing())):
        with pytest.raises(PluginFailed, match="failed with AttributeError"):
            await asyncio.ensure_future(work)
    assert process.stops == [5, 5]


async def test_no_engine_to_adopt() -> None:
    assert await guarded(Gives(None)).adopt("a", LINE, {}, LogRing()) is None


class Torn(list[int]):
    """A list that cannot be read."""

    def __iter__(self) -> Any:
        raise KeyError("secret")


@pytest.mark.parametrize("given", [{"4711": 1}, "4711", [True], Torn()], ids=["mapping", "text", "bool", "torn"])
async def test_processes_are_numbers(given: Any) -> None:
    fake = FakeProcess("http://127.0.0.1:25000")
    fake.pids = given
    process = await launched(fake)
    with pytest.raises(PluginFailed, match=r"(returned an object of type \w+ from processes|failed with KeyError)"):
        await process.processes()


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_an_engine_that_cannot_be_watched_is_stopped(failure: BaseException) -> None:
    process = Broken(failure)
    watched = await launched(process)
    assert await asyncio.ensure_future(watched.exited()) == Exit()
    assert process.stops
    with pytest.raises(PluginFailed):
        await watched.memory()


@pytest.mark.parametrize(
    "failure", [*FAILURES, LoadFailed("no node answers")], ids=lambda failure: type(failure).__name__
)
def test_an_engine_that_cannot_be_stopped_leaves_its_replica_at_rest(
    failure: BaseException, in_virtual_time: Run, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(FakeProcess):
        async def stop(self, timeout: float) -> None:
            raise failure

    class Launches(FakeLauncher):
        async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
            return Stubborn(f"http://127.0.0.1:{line.port}")

    async def scenario() -> None:
        supervisor = Engine(
            ManagedReplica("tiny-1", "tiny", ModelSettings(command="engine"), support_of(ScriptedDriver())),
            launches(guarded(Launches())),
            connect=lambda address: FakeClient({}), listener=EngineListener(),
        )  # fmt: skip
        await supervisor.bring_up()
        await supervisor.stop()
        assert supervisor.state is ReplicaState.STOPPED
        assert "tiny-1 may still run: " in caplog.text

    in_virtual_time(scenario())


def test_an_engine_whose_stop_hangs_leaves_its_replica_at_rest(
    in_virtual_time: Run, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(FakeProcess):
        async def stop(self, timeout: float) -> None:
            await asyncio.Event().wait()

    async def scenario() -> None:
        supervisor = Engine(
            ManagedReplica("tiny-1", "tiny", ModelSettings(command="engine"), support_of(ScriptedDriver())),
            launches(guarded(Gives(Hanging("http://127.0.0.1:25000")))),
            connect=lambda address: FakeClient({}), listener=EngineListener(),
        )  # fmt: skip
        await supervisor.bring_up()
        await asyncio.wait_for(supervisor.stop(7), 3600)
        assert supervisor.state is ReplicaState.STOPPED
        assert "tiny-1 may still run: its launcher has not answered for 67 s" in caplog.text

    in_virtual_time(scenario())


@pytest.mark.parametrize("method", ["prepare", "adopt", "marks"])
def test_a_launcher_that_hangs_delays_a_start_only_for_a_while(
    method: str, in_virtual_time: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(FakeLauncher):
        async def marks(self, variable: str) -> Mapping[int, str]:
            return {}

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    launcher = Hanging()
    setattr(launcher, method, hang)
    if method != "marks":
        (tmp_path / "engines.json").write_text("{}")

    async def scenario() -> None:
        state_file = StateFile(tmp_path)
        state_file.put("old", EngineRecord(host="local", port=25_000, fingerprint="", handle={"address": "http://old"}))
        host = BareHost(guarded(launcher), state_file, {}, lambda backend, address: FakeClient({}))
        await asyncio.wait_for(host.open(), 3600)
        await host.close()
        state_file.close()

    in_virtual_time(scenario())
    said = "cannot be asked for engines" if method == "marks" else "failed to take over old, which may still run"
    assert said in caplog.text


@pytest.mark.parametrize("hangs", [False, True])
def test_an_engine_whose_processes_are_unknown_is_stopped(hangs: bool, in_virtual_time: Run) -> None:
    class Unknown(FakeProcess):
        async def processes(self) -> list[int]:
            if hangs:
                await asyncio.Event().wait()
            raise KeyError("secret")

    async def scenario() -> None:
        gpus, process = Gpus(), Unknown("http://127.0.0.1:25000")
        gpus.now = [Gpu(index=0, uuid="GPU-0", name="H200", total=2, used=1, free=1)]
        supervisor = Engine(
            ManagedReplica("tiny-1", "tiny", ModelSettings(command="engine"), support_of(ScriptedDriver())),
            launches(guarded(Gives(process)), gpus=gpus),
            connect=lambda address: FakeClient({}), listener=EngineListener(),
        )  # fmt: skip
        await supervisor.bring_up()
        await supervisor.stop()
        assert (supervisor.state, len(process.stops)) == (ReplicaState.STOPPED, 1)

    in_virtual_time(scenario())


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_clients_learn_nothing_of_a_failed_launch_but_whose_it_is(failure: BaseException, in_virtual_time: Run) -> None:
    async def scenario() -> None:
        supervisor = Engine(
            ManagedReplica("tiny-1", "tiny", ModelSettings(command="engine"), support_of(ScriptedDriver())),
            launches(guarded(Gives(failure))),
            connect=lambda address: FakeClient({}), listener=EngineListener(),
        )  # fmt: skip
        with pytest.raises(PluginFailed):
            await supervisor.bring_up()
        assert supervisor.state is ReplicaState.FAILED
        assert supervisor.problem == (
            f"The launcher 'acme' of plugin 'acme-cloud' failed with {type(failure).__name__}"
        )

    in_virtual_time(scenario())


@pytest.mark.parametrize(
    "failure", [*FAILURES, LoadFailed("no node answers")], ids=lambda failure: type(failure).__name__
)
async def test_a_gateway_starts_although_an_engine_that_it_does_not_want_cannot_be_stopped(
    failure: BaseException, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(FakeProcess):
        async def stop(self, timeout: float) -> None:
            raise failure

    launcher = FakeLauncher()
    launcher.running["http://old"] = Stubborn("http://old")
    state_file = StateFile(tmp_path)
    state_file.put("old", EngineRecord(host="local", port=25_000, fingerprint="", handle={"address": "http://old"}))
    host = BareHost(guarded(launcher), state_file, {}, lambda backend, address: FakeClient({}))
    await host.open()
    assert "old may still run: " in caplog.text
    assert list(state_file.records) == ["old"], "the next gateway looks for it, too"
    await host.close()
    state_file.close()
