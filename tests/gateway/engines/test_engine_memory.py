"""What engines take: on GPUs, asleep, and as an earlier gateway learned it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import StateFile
from enginehouse.interfaces.driver_support import support_of
from tests.support.bare_host import BareHost
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver
from tests.support.fake_gpus import FakeGpus, gpu
from tests.support.waiting import settled, until

SLEEPING, STOPPED, READY = ReplicaState.SLEEPING, ReplicaState.STOPPED, ReplicaState.READY


class GpuHost:
    """A host with two GPUs and the replicas ``a@a``, ``b@b`` and ``c@c``."""

    def __init__(self, folder: Path, driver: ScriptedDriver, launcher: FakeLauncher) -> None:
        self.folder = folder
        self.driver = driver
        self.launcher = launcher
        self.reader = FakeGpus([gpu(0), gpu(1)])
        self.models = {
            "a": ModelSettings(command="engine", gpus=1, evict="sleep"),
            "b": ModelSettings(command="engine", gpus=1),
            "c": ModelSettings(command="engine", gpus=[0, 1], env={"CUDA_VISIBLE_DEVICES": "9"}),
        }
        self.files: list[StateFile] = []

    def gateway(self) -> BareHost:
        """The gateway's part for the host. An earlier one has been killed."""
        for file in self.files:
            file.close()
        self.files = [StateFile(self.folder)]
        return BareHost(
            self.launcher,
            self.files[0],
            {
                f"{name}@{name}": ManagedReplica(name, name, model, support_of(self.driver))
                for name, model in self.models.items()
            },
            lambda backend, address: FakeClient({}),
            gpus=self.reader,
        )

    def devices(self) -> list[str | None]:
        """``CUDA_VISIBLE_DEVICES`` of each launched engine."""
        return [line.environment.get("CUDA_VISIBLE_DEVICES") for line in self.launcher.lines]

    def holds(self, size: int) -> None:
        """Engines' processes, which all have the number 7, hold so much on the first GPU."""
        self.reader.gpus[0] = gpu(0, processes={7: size})


@pytest.fixture
def host(tmp_path: Path, driver: ScriptedDriver, fake_launcher: FakeLauncher) -> Iterator[GpuHost]:
    fake_launcher.processes = [7]
    host = GpuHost(tmp_path, driver, fake_launcher)
    yield host
    for file in host.files:
        file.close()


async def test_each_engine_sees_its_gpus(host: GpuHost) -> None:
    engines = host.gateway()
    for replica in ("a@a", "b@b", "c@c"):
        await engines.start(replica)
    assert host.devices() == ["0", "1", "9"], "env wins"
    await engines.stop("a@a", None)
    await engines.start("a@a")
    assert host.devices()[-1] == "0"
    await engines.close()


async def test_an_engine_keeps_its_gpus_when_the_gateway_is_killed(host: GpuHost) -> None:
    engines = host.gateway()
    await engines.start("a@a")
    await engines.start("b@b")
    host.launcher.running = {process.address: process for process in host.launcher.launched}
    after = host.gateway()
    await after.open()
    assert {replica: state for replica, state in after.states().items() if state is READY} == {
        "a@a": READY,
        "b@b": READY,
    }
    await after.gpus.refresh()
    assert [each.replicas for each in after.gpus.status("local")] == [["a@a"], ["b@b"]]
    await after.close()


async def test_what_an_engine_takes_is_measured_on_the_gpu(host: GpuHost) -> None:
    engines = host.gateway()
    await engines.gpus.refresh()
    host.holds(5000)
    await engines.start("a@a")
    assert engines.measured == {"a@a": 5000}, "not the 1000 bytes of main memory"
    host.holds(0)
    await engines.start("b@b")
    assert engines.measured["b@b"] == 1000
    await engines.close()


async def test_the_next_gateway_knows_what_an_engine_took(host: GpuHost) -> None:
    engines = host.gateway()
    await engines.start("b@b")
    await engines.close()
    assert host.gateway().measured == {"b@b": 1000}
    host.models["b"] = ModelSettings(command="engine --larger", gpus=1)
    assert host.gateway().measured == {}, "it was measured with another launch line"


@pytest.mark.parametrize(("later", "known"), [(700, {"b@b": 1000}), (800, {})])
async def test_what_was_measured_with_other_files_is_forgotten(
    host: GpuHost, later: int, known: dict[str, int]
) -> None:
    def gateway(estimate: int) -> BareHost:
        made = host.gateway()
        made.engines["b@b"].facts.expect(estimate)
        return made

    engines = gateway(700)
    await engines.start("b@b")
    await engines.close()
    assert gateway(later).measured == known
    assert gateway(later).measured == known


async def test_a_broken_file_of_footprints_is_forgotten(host: GpuHost, caplog: pytest.LogCaptureFixture) -> None:
    (host.folder / "footprints.json").write_text('{"b": "large"}')
    assert host.gateway().measured == {}
    assert "sizes of models are measured again" in caplog.text


async def test_an_evicted_engine_sleeps_if_that_frees_its_memory(host: GpuHost) -> None:
    host.driver.sleeps = host.driver.wakes = True
    engines = host.gateway()
    await engines.gpus.refresh()
    host.holds(5000)
    await engines.start("a@a")
    host.holds(500)
    await engines.evict("a@a")
    assert (engines.states()["a@a"], engines.asleep) == (SLEEPING, {"a@a": 500})
    await engines.start("a@a")
    assert (engines.states()["a@a"], engines.asleep) == (READY, {})
    assert host.driver.asked == ["sleep", "wake"]
    assert len(host.launcher.launched) == 1
    await engines.close()


async def test_an_engine_that_is_woken_while_its_sleep_is_measured_is_as_large_as_one_that_is_awake(
    host: GpuHost,
) -> None:
    host.driver.sleeps = host.driver.wakes = True
    host.models["a"] = ModelSettings(command="engine", idle="sleep")
    engines = host.gateway()
    await engines.start("a@a")
    [process] = host.launcher.launched
    measured = asyncio.get_running_loop().create_future()
    process.memory = lambda: asyncio.wait_for(measured, None)  # type: ignore[method-assign]
    engines.rest(["a@a"])
    await until(lambda: engines.states()["a@a"] is SLEEPING)
    await engines.start("a@a")
    measured.set_result(500)
    await settled(lambda: engines.asleep)
    assert (engines.states()["a@a"], engines.asleep, engines.exited) == (READY, {}, [])
    await engines.close()


@pytest.mark.parametrize(("kept", "asleep"), [(2500, {"a@a": 2500}), (2501, {})])
async def test_an_idle_engine_that_keeps_its_memory_sleeps_but_counts_as_large_as_awake(
    kept: int, asleep: dict[str, int], host: GpuHost
) -> None:
    host.driver.sleeps = True
    host.models["a"] = ModelSettings(command="engine", idle="sleep")
    engines = host.gateway()
    await engines.gpus.refresh()
    host.holds(5000)
    await engines.start("a@a")
    host.holds(kept)
    engines.rest(["a@a"])
    await until(lambda: engines.exited)
    assert (engines.states()["a@a"], engines.asleep, engines.measured) == (SLEEPING, asleep, {"a@a": 5000})
    await engines.close()


@pytest.mark.parametrize("kept", [3000, 5000])
async def test_an_evicted_engine_that_keeps_its_memory_is_stopped(kept: int, host: GpuHost) -> None:
    """As vLLM does on a CPU: it sleeps and frees nothing."""
    host.driver.sleeps = True
    engines = host.gateway()
    await engines.gpus.refresh()
    host.holds(5000)
    await engines.start("a@a")
    host.holds(kept)
    await engines.evict("a@a")
    assert (engines.states()["a@a"], engines.asleep) == (STOPPED, {})
    assert host.driver.asked == ["sleep"]


async def test_an_evicted_engine_that_sleeps_already_is_stopped(host: GpuHost) -> None:
    host.driver.sleeps = True
    engines = host.gateway()
    await engines.gpus.refresh()
    host.holds(5000)
    await engines.start("a@a")
    host.holds(0)
    await engines.evict("a@a")
    assert engines.states()["a@a"] is SLEEPING
    await engines.evict("a@a")
    assert engines.states()["a@a"] is STOPPED


async def test_a_model_that_does_not_say_so_never_sleeps_for_another(host: GpuHost) -> None:
    host.driver.sleeps = True
    engines = host.gateway()
    await engines.start("b@b")
    await engines.evict("b@b")
    assert (engines.states()["b@b"], host.driver.asked) == (STOPPED, [])


async def test_footprints_are_a_file_of_their_own(host: GpuHost) -> None:
    engines = host.gateway()
    await engines.start("b@b")
    [(key, size)] = json.loads((host.folder / "footprints.json").read_text()).items()
    assert (key.partition(" ")[0], size) == ("b", 1000)
    await engines.close()
