from __future__ import annotations

from pathlib import Path

import pytest

from enginehouse import Driver
from enginehouse.domain.plugin_id import PluginId
from enginehouse.drivers import EngineClient, LaunchSpec, PartialAnswer, ServedModel, SupportsFigures, SupportsHandOver
from enginehouse.engines.guards import guarded_driver
from enginehouse.errors import CannotContinue
from enginehouse.interfaces.driver_support import DriverSupport, support_of
from enginehouse.plugin_manager.kinds import faults
from enginehouse.rescheduling import InstanceMetadata
from enginehouse_kit.testing import check_driver
from tests.support.fake_engines import FakeClient


class Plain(Driver):
    """The whole driver of a plain server."""

    async def healthy(self, engine: EngineClient) -> bool:
        return (await engine.request("GET", "/ping")).status == 200

    async def models(self, engine: EngineClient) -> list[ServedModel]:
        return [ServedModel("only")]


SPEC = LaunchSpec(model="m", path="/m", port=1)
GUARDED = guarded_driver(PluginId("driver", "plain"), Plain())


def test_a_plain_server_needs_two_methods() -> None:
    assert faults(Driver, Plain) == ()
    check_driver(Plain)


@pytest.mark.parametrize("support", [support_of(Plain()), GUARDED])
async def test_what_a_plain_server_lacks_has_its_default(support: DriverSupport) -> None:
    engine = FakeClient({"/ping": {}})
    assert await support.driver.healthy(engine)
    assert support.launch.command(SPEC) is None
    assert support.launch.environment(SPEC) == {}
    assert support.launch.find_models(Path()) == ()
    assert not await support.sleep.sleep_as_launched(engine, SPEC)
    assert not await support.sleep.wake_as_launched(engine, SPEC)
    assert support.figures.metrics_path == "/metrics"
    assert await support.figures.concurrency(engine) is None
    assert await support.figures.status(engine) is None
    assert await support.figures.metadata(engine) == InstanceMetadata()
    assert await support.figures.priority_order(engine) == 0
    assert (support.loading, support.hand_over, support.bootstrap) == (None, None, None)


def test_a_plain_server_gets_streams_as_they_are_and_continues_none() -> None:
    continuation = GUARDED.continuation
    assert continuation.continuable("/v1/completions", b"{}") == b"{}"
    with pytest.raises(CannotContinue, match="driver of its engine cannot continue"):
        continuation.continuation(PartialAnswer(path="/v1/completions", body=b"{}", text="a"))


class Able(Plain, SupportsFigures, SupportsHandOver):
    metrics_path = "/figures"


def test_what_a_driver_supports_is_the_driver_itself() -> None:
    driver = Able()
    support = support_of(driver)
    assert support.figures is driver
    assert support.hand_over is driver
    assert support.bootstrap is None
    assert guarded_driver(PluginId("driver", "able"), driver).figures.metrics_path == "/figures"


class Forgetful(Plain):
    """Lacks the base classes that would make the gateway ask for these."""

    metrics_path = "/figures"

    async def sleep(self, engine: EngineClient) -> bool:
        return True


def test_a_forgotten_base_class_is_told() -> None:
    told = faults(Driver, Forgetful)
    assert told == (
        "'sleep' needs the base class 'SupportsSleep'",
        "'metrics_path' needs the base class 'SupportsFigures'",
    )
    with pytest.raises(AssertionError, match="'sleep' needs the base class 'SupportsSleep'"):
        check_driver(Forgetful)
