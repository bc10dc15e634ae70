from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from enginehouse import LaunchSpec, ServedModel, UpstreamError
from enginehouse.engines.health_path import with_health_path
from enginehouse_sim.driver import SimDriver

Fake = Callable[[Mapping[str, Any]], Any]
DOWN = UpstreamError("connection refused")


@pytest.mark.parametrize(
    ("path", "pages", "healthy"),
    [
        ("/ready", {"/ready": {}}, True),
        ("/ready", {"/ready": 204, "/health": {}}, False),
        ("/ready", {"/health": {}}, False),
        ("none", {}, True),
        ("none", {"/": 503}, True),
    ],
)
async def test_a_models_own_page_tells_whether_its_engine_is_ready(
    fake_client: Fake, driver: Any, path: str, pages: Mapping[str, Any], healthy: bool
) -> None:
    driver.verdict = not healthy
    assert await with_health_path(driver, path).healthy(fake_client(pages)) is healthy


async def test_an_engine_that_does_not_answer_is_not_ready(fake_client: Fake, driver: Any) -> None:
    for path in ("/ready", "none"):
        with pytest.raises(UpstreamError):
            await with_health_path(driver, path).healthy(fake_client({"/": DOWN, "/ready": DOWN}))


async def test_everything_else_is_the_drivers_business(fake_client: Fake, driver: Any) -> None:
    driver.sleeps, driver.served = True, [ServedModel("m")]
    wrapped, client = with_health_path(driver, "/ready"), fake_client({})
    assert (await wrapped.sleep(client), await wrapped.wake(client)) == (True, False)
    assert driver.asked == ["sleep", "wake"]
    assert await wrapped.models(client) == [ServedModel("m")]
    spec = LaunchSpec(model="m", path="", port=1)
    assert with_health_path(SimDriver(), "/ready").command(spec) == SimDriver().command(spec)
    assert with_health_path(driver, "/ready").environment(spec) == {}


def test_without_a_page_a_driver_stays_what_it_is(driver: Any) -> None:
    assert with_health_path(driver, "") is driver
