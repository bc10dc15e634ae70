"""A start that shows no sign of progress is found out before its whole time is over."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

import pytest

from enginehouse.config.schema import ModelSettings
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.errors import LoadFailed
from enginehouse.interfaces.driver_support import support_of
from enginehouse.launchers import EngineOutput, EngineProcess, LaunchLine
from enginehouse.telemetry.log_ring import LogRing
from tests.support.fake_engines import FakeClient, FakeLauncher, FakeProcess, ScriptedDriver
from tests.support.host_launchers import launches
from tests.support.launchers import local_launcher
from tests.support.virtual_time import Run
from tests.support.waiting import within

MEBIBYTE = 1 << 20


class ReadingProcess(FakeProcess):
    """Has read ``rate`` bytes a second until ``until``."""

    rate, until = 0, 0.0

    async def bytes_moved(self) -> int | None:
        return int(self.rate * min(asyncio.get_running_loop().time(), self.until))


class ReadingLauncher(FakeLauncher):
    def __init__(self, rate: int = 0, until: float = 0) -> None:
        super().__init__()
        self.rate, self.until = rate, until

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        process = cast("FakeProcess", await super().launch(name, line, output))
        reading = ReadingProcess(process.address)
        reading.rate, reading.until = self.rate, self.until
        self.launched[-1] = reading
        return reading


def starter(driver: ScriptedDriver, launcher: FakeLauncher, **settings: float) -> Engine:
    model = ModelSettings(command="engine", **settings)  # type: ignore[arg-type]
    return Engine(
        ManagedReplica("tiny-1", "tiny", model, support_of(driver)), launches(launcher),
        connect=lambda address: FakeClient({}), listener=EngineListener(),
    )  # fmt: skip


async def fails_at(seconds: float, supervisor: Engine, reason: str) -> None:
    with pytest.raises(LoadFailed, match=reason):
        await supervisor.bring_up()
    assert asyncio.get_running_loop().time() == pytest.approx(seconds, abs=6)


def test_a_hung_start_is_found_out_by_its_silence(in_virtual_time: Run, driver: ScriptedDriver) -> None:
    driver.verdict = False
    supervisor = starter(driver, FakeLauncher(), start_silence=20)
    in_virtual_time(fails_at(20, supervisor, "it showed no sign of progress for 20 s"))


def test_a_start_that_prints_goes_on(in_virtual_time: Run, driver: ScriptedDriver) -> None:
    driver.verdict = False
    supervisor = starter(driver, FakeLauncher(), start_silence=20)

    async def scenario() -> None:
        starting = asyncio.ensure_future(supervisor.bring_up())
        for _ in range(100):
            await asyncio.sleep(15)
            assert not starting.done()
            supervisor.log.write(b".")  # a progress bar, without the end of a line
        driver.verdict = True
        await starting

    in_virtual_time(scenario())


@pytest.mark.long
def test_a_start_that_reads_slowly_goes_on_until_it_stops(in_virtual_time: Run, driver: ScriptedDriver) -> None:
    driver.verdict = False
    supervisor = starter(driver, ReadingLauncher(MEBIBYTE // 5, until=3600), start_silence=20)
    in_virtual_time(fails_at(3620, supervisor, "no sign of progress"))


def test_the_few_bytes_of_health_checks_are_no_progress(in_virtual_time: Run, driver: ScriptedDriver) -> None:
    driver.verdict = False
    supervisor = starter(driver, ReadingLauncher(2048, until=1e6), start_silence=20)
    in_virtual_time(fails_at(20, supervisor, "no sign of progress"))


def test_a_total_limit_holds_beside_that_for_silence(in_virtual_time: Run, driver: ScriptedDriver) -> None:
    driver.verdict = False
    supervisor = starter(driver, ReadingLauncher(MEBIBYTE, until=1e6), start_silence=20, start_timeout=60)
    in_virtual_time(fails_at(60, supervisor, "it was not ready within 60 s"))


def test_a_launch_that_says_nothing_is_silent_too(in_virtual_time: Run, driver: ScriptedDriver) -> None:
    launcher = FakeLauncher()
    launcher.delay = 1e6
    supervisor = starter(driver, launcher, start_silence=20)
    in_virtual_time(fails_at(20, supervisor, "no sign of progress for 20 s .it could not be launched"))


async def test_a_real_process_tells_what_it_reads(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(bytes(8 * MEBIBYTE))
    code = f"import time; open({str(tmp_path / 'model')!r}, 'rb').read(); print('done', flush=True); time.sleep(1000)"
    printed, log = asyncio.Event(), LogRing()
    log.follow(printed)
    line = LaunchLine(command=[sys.executable, "-c", code], port=25_001)
    process = await local_launcher(tmp_path).launch("tiny", line, log)
    await within(printed.wait())
    moved = await process.bytes_moved()
    await process.stop(5)
    assert moved is not None
    assert moved > 8 * MEBIBYTE
