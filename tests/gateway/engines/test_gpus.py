"""The GPUs of a host: how they are read, who gets which, and when their memory is free again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from threading import Event
from types import SimpleNamespace

import pytest

from enginehouse import ConfigError
from enginehouse.config.schema import HostSettings, ModelSettings
from enginehouse.domain.gpu import Gpu
from enginehouse.domain.plugin_id import PluginId
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.gpus import Gpus, host_gpus, pick_gpus
from enginehouse.engines.guards import guarded_launcher
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.errors import PluginFailed
from enginehouse.interfaces.driver_support import support_of
from enginehouse_local import LocalLauncher
from enginehouse_local.nvml import Nvml
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver
from tests.support.fake_gpus import GIB, FakeGpus, FakeNvml, gpu
from tests.support.host_launchers import launches
from tests.support.virtual_time import Run
from tests.support.waiting import until, within


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """NVIDIA's library, as ``nvidia-ml-py`` shows it, on a machine with two GPUs."""
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**fake.functions()))
    return fake


def test_the_library_tells_memory_and_processes(library: FakeNvml) -> None:
    library.processes[1] = {77: 5 * GIB, 78: None}
    first, second = Nvml().read()
    assert (first.index, first.name, first.uuid) == (0, "NVIDIA H100", "GPU-0")
    assert (first.total, first.used, first.free) == (80 * GIB, 2 * GIB, 78 * GIB)
    assert (first.processes, second.processes) == ({}, {77: 5 * GIB})


@pytest.mark.parametrize("lacks", ["package", "driver"])
def test_a_machine_without_the_library_has_no_gpus(
    lacks: str, library: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacks == "package":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    library.broken = True
    assert Nvml().read() == ()


def test_gpus_that_vanish_are_none(library: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    nvml = Nvml()
    assert len(nvml.read()) == 2
    library.broken = True
    assert [*nvml.read(), *nvml.read()] == []
    assert len(caplog.records) == 1
    library.broken = False
    assert len(nvml.read()) == 2, "they are back"


def test_a_gpu_that_is_lost_hides_no_other(library: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    nvml = Nvml()
    library.lost = 0
    assert [gpu.index for gpu in (*nvml.read(), *nvml.read())] == [1, 1]
    assert [record.getMessage() for record in caplog.records] == ["GPU 0 cannot be read: GPU is lost"]


@pytest.mark.parametrize(
    ("wanted", "allowed", "taken", "given"),
    [
        (1, None, [], [2]),
        (2, None, [], [1, 2]),
        (1, [0, 1], [], [1]),
        (1, None, [[2]], [1]),
        (1, None, [[2], [1], [0], [0, 1]], [2]),
        (3, None, [[0]], [0, 1, 2]),
    ],
)
def test_an_engine_gets_the_gpus_with_the_fewest_engines_and_the_most_memory(
    wanted: int, allowed: list[int] | None, taken: list[list[int]], given: list[int]
) -> None:
    gpus = [gpu(0, free=10), gpu(1, free=20), gpu(2, free=30)]
    assert pick_gpus(wanted, allowed, gpus, taken) == given


def test_more_gpus_than_there_are_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"4 GPUs are wanted, and the host has 2.*hosts\.\*\.gpus"):
        pick_gpus(4, [0, 1], [gpu(0), gpu(1)], [])
    with pytest.raises(ConfigError, match=r"the host has 0.*enginehouse\[gpu\]"):
        pick_gpus(1, None, [], [])
    assert pick_gpus(2, [0, 1], [], []) == [0, 1], "a list needs no library"


async def test_an_engine_gets_the_gpus_that_are_listed_for_it_else_those_of_its_host() -> None:
    gpus = Gpus(None, [1])
    assert (await gpus.assign("a", None), await gpus.assign("b", [0, 2])) == ("1", "0,2")
    assert await Gpus().assign("a", None) == ""


async def test_two_engines_get_two_gpus_and_give_them_back() -> None:
    gpus = Gpus(FakeGpus([gpu(0), gpu(1)]))
    assert [await gpus.assign(name, 1) for name in ("a", "b", "c")] == ["0", "1", "0"]
    gpus.release("b")
    assert await gpus.assign("d", 1) == "1"
    gpus.adopt("e", "0,1")
    gpus.adopt("f", "GPU-8f6a,1")  # as its env says
    assert [each.replicas for each in gpus.status("local")] == [["a", "c", "e"], ["d", "e", "f"]]


def test_gpus_that_are_there_later_are_read_too_and_a_reading_without_any_forgets_none(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        readings: list[Sequence[Gpu]] = [[], [gpu(0), gpu(1)], [], [gpu(0)]]
        gpus, seen = Gpus(lambda: readings.pop(0)), []
        gpus.begin()
        for _ in range(4):
            await asyncio.sleep(4)
            seen.append(len(gpus.now))
            await asyncio.sleep(1)
        gpus.close()
        assert seen == [0, 2, 2, 1]

    in_virtual_time(scenario())


async def test_a_reading_that_hangs_holds_one_thread_and_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse.engines.gpus._READ_S", 0.01)
    goes_on = Event()
    readings: list[None] = []

    def read() -> Sequence[Gpu]:
        readings.append(None)
        if len(readings) > 1:
            goes_on.wait()
        return [gpu(0), gpu(1)]

    gpus = Gpus(read)
    await gpus.refresh()
    assert [await within(gpus.assign(name, 1)) for name in ("a", "b")] == ["0", "1"]
    assert len(readings) == 2
    goes_on.set()


async def test_a_process_counts_on_every_gpu() -> None:
    gpus = Gpus(FakeGpus([gpu(0, processes={7: 3, 8: 4}), gpu(1, processes={7: 5})]))
    await gpus.refresh()
    assert (await gpus.used_by([7, 9]), await gpus.used_by([])) == (8, 0)


def test_only_the_gpus_of_a_list_make_the_budget(library: FakeNvml) -> None:
    settings, launcher = HostSettings(gpus=[1]), LocalLauncher()
    assert host_gpus(settings, launcher).total(settings) == 80 * GIB
    assert host_gpus(HostSettings(), launcher).total(HostSettings()) is None
    assert host_gpus(settings, FakeLauncher()).total(settings) is None


class FallingMemory(FakeGpus):
    """Frees some memory with each reading."""

    def __init__(self, free: Sequence[int], holds_until: int = 0) -> None:
        super().__init__([])
        self.readings = 0
        self._free = free
        self._holds_until = holds_until

    def read(self) -> list[Gpu]:
        free = self._free[min(self.readings, len(self._free) - 1)]
        held = {7: 1} if self.readings < self._holds_until else {}
        self.readings += 1
        return [gpu(0, free=free, processes=held)]


@pytest.mark.parametrize(
    ("free", "holds_until", "needed", "readings"),
    [
        ([10, 10, 10], 0, None, 2),
        ([10, 20, 30, 30], 0, None, 4),
        ([10, 20, 30, 40, 50], 0, 30, 3),
        ([10, 10, 10, 10], 3, 5, 4),
        ([10, 20, 20], 0, 70, 3),
    ],
)
def test_a_start_waits_until_the_memory_of_what_has_ended_is_free(
    free: list[int], holds_until: int, needed: int | None, readings: int, in_virtual_time: Run
) -> None:
    async def scenario() -> None:
        reader = FallingMemory([0, *[size * GIB for size in free]], holds_until + 1)
        gpus = Gpus(reader)
        await gpus.refresh()
        size = None if needed is None else needed * GIB
        await gpus.until_free("a", size)
        assert reader.readings == 1, "nothing has ended"
        gpus.ended([7])
        await gpus.until_free("a", size)
        assert reader.readings == 1 + readings

    in_virtual_time(scenario())


def test_memory_that_is_never_freed_does_not_hold_a_start_for_ever(
    in_virtual_time: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        gpus = Gpus(FallingMemory([10], holds_until=10_000))
        await gpus.refresh()
        gpus.ended([7])
        await gpus.until_free("a", None)
        assert 10 <= asyncio.get_running_loop().time() < 11

    in_virtual_time(scenario())
    assert "starts anyway" in caplog.text


def test_a_reading_that_fails_is_not_the_last_one(in_virtual_time: Run) -> None:
    class FailsOnce(FakeGpus):
        readings = 0

        def read(self) -> Sequence[Gpu]:
            self.readings += 1
            if self.readings == 2:
                raise PluginFailed("it cannot read now")
            return [gpu(0, free=self.readings)]

    async def scenario() -> None:
        gpus = Gpus(FailsOnce([]))
        gpus.begin()
        await asyncio.sleep(9)
        assert [each.free for each in gpus.now] == [1]
        await asyncio.sleep(5)
        assert [each.free for each in gpus.now] == [3]
        gpus.close()

    in_virtual_time(scenario())


class BrokenGpus(FakeLauncher):
    reads_gpus = True

    def gpus(self) -> list[Gpu]:
        raise OSError("the library is gone")


async def test_a_launcher_that_fails_to_tell_its_gpus_makes_clear_what_is_missing() -> None:
    launcher = guarded_launcher(PluginId("launcher", "broken", "acme"), BrokenGpus())
    gpus = host_gpus(HostSettings(), launcher)
    with pytest.raises(ConfigError, match="1 GPUs are wanted, and the host has 0"):
        await gpus.assign("a", 1)
    assert await gpus.assign("a", [1]) == "1"
    listed = host_gpus(settings := HostSettings(gpus=[0, 1]), launcher)
    assert listed.total(settings) is None
    assert await listed.assign("a", 1) == "0", "the configuration names them"


async def test_what_is_launched_after_a_reload_gets_other_gpus() -> None:
    gpus = Gpus(FakeGpus([gpu(0), gpu(1)]), [0])
    assert await gpus.assign("a", 1) == "0"
    gpus.reconfigure(HostSettings(gpus=[1]))
    assert await gpus.assign("b", 1) == "1"
    gpus.reconfigure(HostSettings())
    assert await gpus.assign("c", None) == ""


def test_the_memory_after_a_reload_is_that_of_the_gpus_that_are_listed_then() -> None:
    reader = FakeGpus([gpu(0), gpu(1), gpu(2)])
    gpus = Gpus(reader, [0])
    known = gpu(0).total
    totals = [gpus.total(HostSettings(gpus=listed)) for listed in ([0], [1, 2], [7])]
    assert totals == [known, 2 * known, None], "before the reload is carried out"
    assert gpus.total(HostSettings()) is None
    assert [each.index for each in gpus.now] == [0]


async def test_a_start_that_is_given_up_before_its_launch_has_no_gpus() -> None:
    gpus = Gpus(FakeGpus([gpu(0, processes={7: GIB})]))
    await gpus.refresh()
    gpus.ended([7])  # the start waits for its memory
    engine = Engine(
        ManagedReplica("a", "a", ModelSettings(command="engine", gpus=1), support_of(ScriptedDriver())),
        launches(FakeLauncher(), gpus=gpus), connect=lambda address: FakeClient({}), listener=EngineListener(),
    )  # fmt: skip
    start = asyncio.ensure_future(engine.bring_up())
    await until(lambda: gpus.status("local")[0].replicas == ["a@a"])
    start.cancel()
    await asyncio.wait([start])
    assert gpus.status("local")[0].replicas == []
