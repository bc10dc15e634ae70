"""The memory of an ended engine becomes free a while later: a start that comes too soon is tried again, unseen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.gpu import Gpu
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import StateFile
from enginehouse.errors import NotEnoughMemory
from enginehouse.interfaces.driver_support import support_of
from enginehouse.launchers import EngineOutput, EngineProcess, LaunchLine
from tests.support.bare_host import BareHost
from tests.support.fake_engines import FakeClient, FakeLauncher, FakeProcess, ScriptedDriver
from tests.support.fake_gpus import FakeGpus, gpu
from tests.support.virtual_time import Run


def now() -> float:
    return asyncio.get_running_loop().time()


class CrowdedLauncher(FakeLauncher):
    """Its engines find too little memory and exit until ``free_at``. ``tries``: when each one was launched."""

    def __init__(self) -> None:
        super().__init__()
        self.free_at = 0.0
        self.tries: list[float] = []

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        process = cast("FakeProcess", await super().launch(name, line, output))
        self.tries.append(now())
        if now() < self.free_at:
            output.write(b"CUDA error: out of memory\n")
            process.end.set_result(1)
        return process


class FreedLater(FakeGpus):
    """A GPU of which 10 bytes are free until ``free_at``, then 2000."""

    def __init__(self) -> None:
        super().__init__([])
        self.free_at = 0.0

    def read(self) -> list[Gpu]:
        used = 1990 if now() < self.free_at else 0
        return [gpu(0, total=2000, free=2000 - used)]


class Stage:
    """A host with the models ``a`` and ``b``."""

    def __init__(self, folder: Path, gpus: FakeGpus | None = None) -> None:
        self.launcher = CrowdedLauncher()
        self.driver = ScriptedDriver()
        self.file = StateFile(folder)
        model = ModelSettings(command="engine")
        self.host = BareHost(
            self.launcher,
            self.file,
            {f"{name}@{name}": ManagedReplica(name, name, model, support_of(self.driver)) for name in "ab"},
            lambda backend, address: FakeClient({}),
            gpus=gpus,
        )

    async def swap(self, free_after: float) -> float:
        """Replace ``a`` by ``b``, with the memory of ``a`` free so many seconds after its end. Returns the time."""
        await self.host.start("a@a")
        await self.host.evict("a@a")
        began = now()
        self.launcher.free_at = began + free_after
        self.driver.verdict = True
        await self.host.start("b@b")
        return now() - began


def test_a_start_just_after_the_end_of_another_engine_is_tried_again(in_virtual_time: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path)
        stage.driver.delay = 0.1  # an engine that exits is never healthy
        assert 3 < await stage.swap(free_after=3) < 5
        of_b = [state for replica, state in stage.host.changes if replica == "b@b"]
        assert of_b == [ReplicaState.STARTING, ReplicaState.READY], "nobody sees a failure"
        stage.file.close()

    in_virtual_time(scenario())


def test_a_second_try_begins_once_the_gpu_shows_the_memory_free(in_virtual_time: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        reader = FreedLater()
        stage = Stage(tmp_path, reader)
        await stage.host.gpus.refresh()
        stage.driver.delay = 0.1
        stage.host.measured["b@b"] = 1500
        reader.free_at = 4.0
        assert await stage.swap(free_after=3.5) < 4.2
        stage.file.close()

    in_virtual_time(scenario())


def test_memory_that_never_becomes_free_is_reported_and_the_host_goes_on(in_virtual_time: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path)
        stage.driver.delay = 0.1
        with pytest.raises(NotEnoughMemory, match="out of memory"):
            await stage.swap(free_after=60)
        assert len(stage.launcher.tries) == 1 + 5
        await asyncio.sleep(60)
        await stage.host.start("b@b")
        stage.file.close()

    in_virtual_time(scenario())


def test_a_start_long_after_any_end_is_tried_once(in_virtual_time: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path)
        stage.driver.delay = 0.1
        stage.launcher.free_at = 60
        with pytest.raises(NotEnoughMemory):
            await stage.host.start("b@b")
        assert len(stage.launcher.tries) == 1
        stage.file.close()

    in_virtual_time(scenario())


def test_a_start_that_is_tried_again_can_be_stopped(in_virtual_time: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        stage = Stage(tmp_path)
        stage.driver.delay = 0.1
        swapping = asyncio.ensure_future(stage.swap(free_after=60))
        await asyncio.sleep(2)
        await stage.host.stop("b@b", None)
        with pytest.raises(Exception, match="was stopped while it started"):
            await swapping
        tries = len(stage.launcher.tries)
        await asyncio.sleep(60)
        assert len(stage.launcher.tries) == tries
        stage.file.close()

    in_virtual_time(scenario())
