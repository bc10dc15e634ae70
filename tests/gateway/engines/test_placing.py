"""Engines whose launcher finds their places elsewhere: waiting for resources, launches there, and lost places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from enginehouse import ConfigError, Driver, ReplicaState
from enginehouse.config.schema import Config, HostSettings, ModelSettings
from enginehouse.domain.plugin_id import PluginId
from enginehouse.engines.engine import Engine
from enginehouse.engines.guards import guarded_launcher
from enginehouse.engines.host_context import ManagedReplica, check_placement, placement_of
from enginehouse.engines.launches import Ports
from enginehouse.engines.state_file import StateFile
from enginehouse.errors import LoadFailed
from enginehouse.interfaces.driver_support import support_of
from enginehouse.launchers import EngineNeeds, Exit, LaunchLine, Place, PlacementOptions
from enginehouse.telemetry.log_ring import LogRing
from enginehouse_vllm import VllmDriver
from tests.support.bare_host import BareHost, Heard
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver
from tests.support.host_launchers import launches
from tests.support.virtual_time import Run

PLACING, STARTING, READY = ReplicaState.PLACING, ReplicaState.STARTING, ReplicaState.READY
STOPPING, STOPPED, FAILED = ReplicaState.STOPPING, ReplicaState.STOPPED, ReplicaState.FAILED
PLACE = Place(port=5000, bind="10.0.0.7", node="gpu-3", unit="rack-1", handle={"actor": "a"})


class Wishes(PlacementOptions, frozen=True, forbid_unknown_fields=True):
    labels: dict[str, str] = {}
    nodes: Annotated[int, Meta(ge=1)] = 1


class Cluster(FakeLauncher):
    """Has room once ``room`` is set; says that it is full until then."""

    Options = Wishes
    places_gpus = True

    def __init__(self) -> None:
        super().__init__()
        self.room = asyncio.Event()
        self.was_asked = asyncio.Event()
        self.place_found: Place = PLACE
        self.problem = self.too_large = ""
        self.asked: list[tuple[str, EngineNeeds]] = []
        self.files: Sequence[str] = ()
        self.released: list[Place] = []
        self.given_up = 0

    async def no_room(self, needs: EngineNeeds) -> str:
        return self.too_large

    async def place(self, name: str, needs: EngineNeeds, waits: Callable[[str], None]) -> Place:
        self.asked.append((name, needs))
        self.was_asked.set()
        if not self.room.is_set():
            waits("it needs 1 GPU, and 0 of 8 are free")
            try:
                await self.room.wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        return self.place_found

    async def release(self, place: Place) -> None:
        self.released.append(place)

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        self.files = files
        return self.problem


def _managed(model: ModelSettings, driver: Driver | None = None) -> ManagedReplica:
    return ManagedReplica("tiny", "tiny", model, support_of(driver or ScriptedDriver()))


class Stage:
    """``set`` changes the settings of the model."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.states: list[ReplicaState] = []
        self.addresses: list[str] = []
        self.ports = Ports(25_000, 25_999)
        self.supervisor = Engine(
            _managed(ModelSettings()), launches(self.cluster, ports=self.ports), connect=self._connect,
            listener=Heard(self.states),
        )  # fmt: skip
        self.set(command="engine --host ${bind} --port ${port}", gpus=1)

    def set(self, **model: Any) -> None:
        managed = _managed(ModelSettings(**{"start_timeout": 60.0, **model}))
        self.supervisor.reconfigure(managed._replace(placement={"nodes": 2}))

    def _connect(self, address: str) -> FakeClient:
        self.addresses.append(address)
        return FakeClient({})


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_an_engine_waits_for_room_and_is_then_launched_where_it_was_placed(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        start = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(300)
        assert (stage.supervisor.state, stage.supervisor.problem) == (PLACING, "it needs 1 GPU, and 0 of 8 are free")
        stage.cluster.room.set()
        await start
        assert stage.supervisor.run is not None
        assert stage.supervisor.run.place == PLACE

    in_virtual_time(scenario())
    assert stage.states == [STARTING, PLACING, STARTING, READY]
    [line] = stage.cluster.lines
    assert list(line.command) == ["engine", "--host", "10.0.0.7", "--port", "5000"]
    assert (line.bind, line.port, line.place) == ("10.0.0.7", 5000, PLACE)
    [(name, needs)] = stage.cluster.asked
    assert (name, needs.gpus, needs.ports, needs.options_as(Wishes).nodes) == ("tiny", 1, (25_000, 25_999), 2)
    assert stage.cluster.released == []


def test_a_model_that_no_machine_can_hold_waits_before_others_are_stopped(in_virtual_time: Run, stage: Stage) -> None:
    stage.cluster.too_large = "GPU 9 is wanted, and 0 nodes have so much"

    async def scenario() -> None:
        async def load() -> None:
            async with stage.supervisor.prepared(["b@b"]):
                await stage.supervisor.bring_up()

        loading = asyncio.ensure_future(load())
        await asyncio.sleep(300)
        assert stage.supervisor.state is PLACING
        stage.cluster.room.set()  # a machine has come
        await loading
        assert stage.supervisor.run is not None
        assert stage.supervisor.run.place == PLACE

    in_virtual_time(scenario())
    assert len(stage.cluster.asked) == 1
    assert stage.cluster.released == []


@pytest.mark.parametrize("found", [False, True])
def test_a_place_that_is_not_wanted_any_more_is_given_up(in_virtual_time: Run, stage: Stage, found: bool) -> None:
    stage.cluster.too_large = "GPU 9 is wanted, and 0 nodes have so much"

    async def scenario() -> None:
        async def prepare() -> None:
            async with stage.supervisor.prepared(["b@b"]):
                await asyncio.Event().wait()

        waiting = asyncio.ensure_future(prepare())
        await asyncio.sleep(1)
        if found:
            stage.cluster.room.set()
            await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert stage.supervisor.state is STOPPED

    in_virtual_time(scenario())
    assert (len(stage.cluster.released), stage.cluster.given_up) == ((1, 0) if found else (0, 1))


def test_the_wait_for_room_has_a_limit_of_its_own(in_virtual_time: Run, stage: Stage) -> None:
    stage.set(command="engine ${port}", place_timeout=200.0, start_timeout=5.0)

    async def scenario() -> None:
        with pytest.raises(
            LoadFailed, match=r"no machine had room for it within 200 s \(models\.\*\.place_timeout\): it needs 1"
        ):
            await stage.supervisor.bring_up()
        assert asyncio.get_running_loop().time() == 200
        await asyncio.sleep(0)

    in_virtual_time(scenario())
    assert stage.states == [STARTING, PLACING, FAILED]
    assert (stage.cluster.given_up, stage.cluster.lines) == (1, [])


def test_an_engine_that_waits_for_room_can_be_stopped(in_virtual_time: Run, stage: Stage) -> None:
    async def scenario() -> None:
        start = asyncio.ensure_future(stage.supervisor.bring_up())
        await asyncio.sleep(1)
        await stage.supervisor.stop()
        with pytest.raises(LoadFailed, match="was stopped while it started"):
            await start

    in_virtual_time(scenario())
    assert stage.states == [STARTING, PLACING, STOPPING, STOPPED]
    assert stage.cluster.given_up == 1


def test_an_engine_that_cannot_start_in_its_place_leaves_it_free(in_virtual_time: Run, stage: Stage) -> None:
    stage.cluster.problem = "there is no file /models/a.gguf on gpu-3 (copy it there)"
    stage.cluster.room.set()

    async def scenario() -> None:
        with pytest.raises(LoadFailed, match=r"did not start: there is no file /models/a\.gguf on gpu-3"):
            await stage.supervisor.bring_up()

    in_virtual_time(scenario())
    assert stage.cluster.released == [PLACE]
    assert stage.cluster.lines == []


def test_a_place_is_freed_if_the_launch_fails(in_virtual_time: Run, stage: Stage) -> None:
    stage.cluster.room.set()
    stage.cluster.delay = 1e6

    async def scenario() -> None:
        with pytest.raises(LoadFailed, match="could not be launched in that time"):
            await stage.supervisor.bring_up()

    in_virtual_time(scenario())
    assert stage.cluster.released == [PLACE]


def test_the_launcher_is_asked_for_the_files_that_the_driver_names(in_virtual_time: Run) -> None:
    stage = Stage()
    stage.cluster.room.set()
    model = ModelSettings(driver="vllm", path="/models/qwen", start_timeout=1.0)
    stage.supervisor.reconfigure(_managed(model, VllmDriver()))

    async def scenario() -> None:
        with pytest.raises(LoadFailed):
            await stage.supervisor.bring_up()

    in_virtual_time(scenario())
    assert list(stage.cluster.files) == ["/models/qwen"]


def test_an_engine_on_two_machines_has_a_command_for_each(in_virtual_time: Run) -> None:
    stage = Stage()
    stage.cluster.room.set()
    stage.cluster.place_found = Place(port=5000, bind="10.0.0.7", others=("10.0.0.8",), meet_at="10.0.0.7:5001")
    model = ModelSettings(driver="vllm", path="org/large", start_timeout=1.0, args=["-tp", "8"])
    stage.supervisor.reconfigure(_managed(model, VllmDriver()))

    async def scenario() -> None:
        with pytest.raises(LoadFailed):
            await stage.supervisor.bring_up()

    in_virtual_time(scenario())
    [line] = stage.cluster.lines
    first, second = " ".join(line.command), " ".join(line.others[0])
    meet = "--master-addr 10.0.0.7 --master-port 5001"
    assert f"--host 10.0.0.7 --port 5000 --nnodes 2 --node-rank 0 {meet} -tp 8" in first
    assert f"--host 10.0.0.8 --port 5000 --nnodes 2 --node-rank 1 {meet} --headless -tp 8" in second
    assert len(line.others) == 1


def test_a_lost_engine_is_told_from_one_that_exited(in_virtual_time: Run, stage: Stage) -> None:
    stage.cluster.room.set()

    async def scenario() -> None:
        await stage.supervisor.bring_up()
        assert not stage.supervisor.is_lost
        stage.cluster.launched[0].end.set_result(Exit(lost=True, why="node gpu-3 is dead"))
        await asyncio.sleep(1)

    in_virtual_time(scenario())
    assert stage.states == [STARTING, READY, FAILED]
    assert stage.supervisor.problem == "The engine was lost: node gpu-3 is dead"
    assert stage.supervisor.is_lost


async def test_where_an_engine_runs_is_recorded_and_survives_the_gateway(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state")
    line = LaunchLine(command=["engine"], port=5000, bind="10.0.0.7", place=PLACE)
    await launches(Cluster(), file, host="far").launch("a", line, LogRing())
    file.close()
    again = StateFile(tmp_path / "state")
    assert again.records["a"].place == PLACE
    again.close()


async def test_an_engine_is_recorded_while_it_waits_for_its_place(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state")
    cluster = Cluster()
    launcher = launches(cluster, file, host="far")
    wait = asyncio.ensure_future(launcher.find_place("a", EngineNeeds(), 0, lambda why: None))
    await cluster.was_asked.wait()
    assert file.records["a"].handle == {}
    cluster.room.set()
    assert await wait == PLACE
    assert not file.records
    file.close()


class SlowToPrepare(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.room.set()
        self.connected = asyncio.Event()
        self.tries = 0

    async def prepare(self, logs: Path) -> None:
        self.tries += 1
        if self.tries == 1:
            raise LoadFailed("no cluster answers at ray://head")
        await self.connected.wait()


async def test_a_launcher_is_prepared_when_it_is_needed_first_and_again_after_a_failure(tmp_path: Path) -> None:
    file, cluster = StateFile(tmp_path / "state"), SlowToPrepare()
    launcher = launches(cluster, file, host="far")
    with pytest.raises(LoadFailed, match="no cluster answers"):
        await launcher.find_place("a", EngineNeeds(), 0, lambda why: None)
    first, second = (
        asyncio.ensure_future(launcher.find_place(name, EngineNeeds(), 0, lambda why: None)) for name in "ab"
    )
    await asyncio.sleep(0.01)
    first.cancel()
    cluster.connected.set()
    assert await second == PLACE, "the preparation goes on for others"
    assert cluster.tries == 2
    file.close()


def config(model: dict[str, Any], host: dict[str, Any]) -> Config:
    return Config(
        hosts={"far": HostSettings(launcher="cluster", placement=host)},
        models={"m": ModelSettings(command="engine ${port}", host="far", **model)},
    )


def test_the_options_of_a_model_win_over_those_of_its_host() -> None:
    wanted = config({"placement": {"nodes": 2}}, {"nodes": 1, "labels": {"a": "b"}})
    assert placement_of(wanted, wanted.models["m"], "far") == {"nodes": 2, "labels": {"a": "b"}}
    check_placement(wanted, "m", "far", Cluster())


@pytest.mark.parametrize(
    ("model", "host", "said"),
    [
        (
            {"placement": {"node": 2}},
            {},
            r"models\.m\.placement\.node: unknown option 'node' of the launcher 'cluster'",
        ),
        ({}, {"nodes": 0}, r"hosts\.far\.placement"),
        ({"gpus": [0, 1]}, {}, r"models\.m\.gpus: the launcher 'cluster' of host 'far' chooses the GPUs itself"),
    ],
)
def test_options_that_the_launcher_does_not_take_are_refused(
    model: dict[str, Any], host: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_placement(config(model, host), "m", "far", Cluster())


@pytest.mark.usefixtures("all_ports_are_free")
def test_hosts_share_the_ports_of_this_machine() -> None:
    ports = Ports(25_000, 25_001)
    near, far = ports.within(25_000, 25_000), ports.within(25_000, 25_001)
    assert near.take() == 25_000
    assert far.take() == 25_001
    with pytest.raises(LoadFailed, match=r"No free port between 25000 and 25000 .*hosts\.\*\.ports"):
        near.take()
    near.give_back(25_000)
    far.limit_to(25_000, 25_000)
    assert far.take() == 25_000


async def test_a_launcher_without_marks_is_not_prepared_to_look_for_them(tmp_path: Path) -> None:
    file, cluster = StateFile(tmp_path / "state"), SlowToPrepare()
    launcher = guarded_launcher(PluginId("launcher", "cluster", "acme"), cluster)
    assert file.is_lost
    host = BareHost(launcher, file, {}, lambda *_: FakeClient({}), name="far")
    await host.open()
    assert cluster.tries == 0
    await host.close()
    file.close()
