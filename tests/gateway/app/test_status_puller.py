from __future__ import annotations

import asyncio

import pytest

from enginehouse.app.status_puller import StatusPuller
from enginehouse.drivers import EngineClient, SupportsFigures
from enginehouse.errors import UpstreamError
from enginehouse.rescheduling import InstanceMetadata, InstanceStatus
from tests.support.fake_engines import ScriptedDriver, running_engines
from tests.support.virtual_time import Run


class Reporting(ScriptedDriver):
    """Reports ``status``, after ``gate`` has opened."""

    def __init__(self) -> None:
        super().__init__()
        self.status_now: InstanceStatus | Exception | None = InstanceStatus(num_running_requests=3, timestamp_ms=1)
        self.blocks = 16
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked_metadata = 0
        self.asked_status = 0

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        self.asked_status += 1
        await self.gate.wait()
        if isinstance(self.status_now, Exception):
            raise self.status_now
        return self.status_now

    async def metadata(self, engine: EngineClient) -> InstanceMetadata:
        self.asked_metadata += 1
        return InstanceMetadata(block_size=self.blocks)


def puller(**drivers: SupportsFigures) -> StatusPuller:
    return StatusPuller(lambda: running_engines(drivers), print)


async def test_the_figures_of_each_engine_are_kept_with_the_gateways_time() -> None:
    it = puller(a=Reporting())
    await it.ask()
    report = it.reports["a"]

    assert (report.status.instance_id, report.status.num_running_requests) == ("a", 3)
    assert report.status.timestamp_ms > 1_700_000_000_000
    assert report.metadata.block_size == 16


async def test_routing_sees_each_report() -> None:
    engines = running_engines({"a": Reporting(), "b": ScriptedDriver()})
    await StatusPuller(lambda: engines, print).ask()

    assert engines.fleet.load("a").figures_at is not None
    assert engines.fleet.load("b").figures_at is None


async def test_an_engine_without_figures_has_no_report() -> None:
    it = puller(a=ScriptedDriver())
    await it.ask()

    assert it.reports == {}


async def test_figures_stay_when_an_engine_fails_and_metadata_is_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = Reporting()
    it = puller(a=driver)
    await it.ask()
    await it.ask()
    assert driver.asked_metadata == 1
    before = it.reports["a"]
    working, driver.status_now = driver.status_now, UpstreamError("it is gone")
    await it.ask()
    await it.ask()

    assert it.reports["a"] is before
    assert caplog.messages == ["Backend a does not report its figures: it is gone"]
    driver.status_now, driver.blocks = working, 32
    await it.ask()
    assert it.reports["a"].metadata.block_size == 32


async def test_figures_that_are_no_numbers_are_a_problem_that_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    driver = Reporting()
    driver.status_now = InstanceStatus(num_total_gpu_tokens="many")  # type: ignore[arg-type]
    it = puller(a=driver)
    await it.ask()
    await it.ask()
    assert it.reports == {}
    assert caplog.text.count("Backend a does not report its figures") == 1


async def test_an_engine_that_is_gone_has_no_report() -> None:
    engines = {"a": Reporting()}
    it = StatusPuller(lambda: running_engines(engines), print)
    await it.ask()
    engines.clear()
    await it.ask()

    assert it.reports == {}


def test_a_slow_engine_delays_no_other_and_is_asked_once_at_a_time(in_virtual_time: Run) -> None:
    async def scene() -> None:
        slow, quick = Reporting(), Reporting()
        slow.gate.clear()
        it = puller(slow=slow, quick=quick)
        it.every(0.5)
        it.start()
        await asyncio.sleep(3.1)
        assert list(it.reports) == ["quick"]
        assert (slow.asked_status, quick.asked_status) == (1, 7)
        slow.gate.set()
        await asyncio.sleep(0.5)
        assert set(it.reports) == {"quick", "slow"}
        it.stop()

    in_virtual_time(scene())


async def test_an_engine_of_the_same_name_is_another_one_whose_problem_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = Reporting()
    failing.status_now = UpstreamError("it is gone")
    engines = {"a": failing}
    it = StatusPuller(lambda: running_engines(engines), print)
    await it.ask()
    engines.clear()
    await it.ask()
    engines["a"] = failing
    await it.ask()

    assert caplog.messages == ["Backend a does not report its figures: it is gone"] * 2
