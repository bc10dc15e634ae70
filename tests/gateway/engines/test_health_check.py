from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from enginehouse.engines.probing import HealthCheck
from enginehouse.errors import UpstreamError
from enginehouse.telemetry.log_ring import LogRing
from tests.support.fake_engines import FakeClient, FakeProcess, ScriptedDriver
from tests.support.virtual_time import Run

LINE = b"a line\n"
DOWN = UpstreamError("connection refused")


@pytest.mark.parametrize(
    ("path", "pages", "problem"),
    [
        ("/ready", {"/ready": {}}, None),
        ("/ready", {"/ready": 204, "/health": {}}, "GET /ready answered 204"),
        ("/ready", {"/health": {}}, "GET /ready answered 404"),
        ("none", {}, None),
        ("none", {"/": 503}, None),
        ("/ready", {"/ready": DOWN}, "connection refused"),
        ("none", {"/": DOWN}, "connection refused"),
    ],
)
async def test_a_models_own_page_shows_whether_its_engine_is_ready(
    driver: ScriptedDriver, path: str, pages: Mapping[str, Any], problem: str | None
) -> None:
    driver.verdict = problem is not None
    assert await HealthCheck(driver, path).problem(FakeClient(pages), 1.0) == problem
    assert driver.health_checks == [], "the driver is not asked"


@pytest.mark.parametrize(
    ("verdict", "problem"),
    [
        (True, None),
        (False, "its driver says that it is not healthy"),
        (DOWN, "connection refused"),
        (ZeroDivisionError("oops"), "its health check failed with ZeroDivisionError"),
    ],
)
async def test_without_a_page_the_driver_decides(
    driver: ScriptedDriver, verdict: bool | Exception, problem: str | None
) -> None:
    driver.verdict = verdict
    assert await HealthCheck(driver).problem(FakeClient({}), 1.0) == problem


def test_an_engine_is_asked_soon_after_it_has_printed_something(in_virtual_time: Run, driver: ScriptedDriver) -> None:
    async def scene() -> None:
        log, loop = LogRing(), asyncio.get_running_loop()
        ready_at = loop.time() + 7.06

        def become_ready() -> None:
            driver.verdict = True
            log.write(LINE)

        driver.verdict = False
        loop.call_at(ready_at, become_ready)
        await HealthCheck(driver).wait_until_healthy(FakeProcess("a"), FakeClient({}), log, lambda _: None)
        assert loop.time() - ready_at <= 0.004

    in_virtual_time(scene())
    assert len(driver.health_checks) < 110, "an engine that takes long is asked ten times a second"


def test_an_engine_that_prints_all_the_time_is_asked_less_and_less(
    in_virtual_time: Run, driver: ScriptedDriver
) -> None:
    async def scene() -> None:
        log, loop = LogRing(), asyncio.get_running_loop()
        for millisecond in range(3000):
            loop.call_later(millisecond / 1000, log.write, LINE)
        loop.call_later(3, setattr, driver, "verdict", True)
        driver.verdict = False
        await HealthCheck(driver).wait_until_healthy(FakeProcess("a"), FakeClient({}), log, lambda _: None)

    in_virtual_time(scene())
    assert len(driver.health_checks) < 250


def test_what_an_engine_prints_about_a_health_check_leads_to_no_other_one(
    in_virtual_time: Run, driver: ScriptedDriver
) -> None:
    log = LogRing()

    class Prints(FakeClient):
        async def request(self, method: str, path: str, body: bytes = b"") -> Any:
            asyncio.get_running_loop().call_later(0.001, log.write, LINE)
            return await super().request(method, path, body)

    async def scene() -> None:
        engine = Prints({"/ready": 503})
        waiting = asyncio.ensure_future(
            HealthCheck(driver, "/ready").wait_until_healthy(FakeProcess("a"), engine, log, lambda _: None)
        )
        await asyncio.sleep(10)
        waiting.cancel()
        assert len(engine.asked) < 140

    in_virtual_time(scene())
