from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from enginehouse import UpstreamError
from enginehouse.engines.probing.health_check import HealthCheck
from tests.support.fake_engines import FakeClient, ScriptedDriver

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
