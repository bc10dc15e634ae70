from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from enginehouse import Capabilities, Health
from enginehouse.config.schema import CheckSettings
from enginehouse.drivers import EngineClient, ServedModel
from enginehouse.engines.probing import Prober
from enginehouse.errors import UpstreamError
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.driver_support import support_of
from enginehouse_vllm import VllmDriver
from tests.support.fake_engines import FakeClient, ScriptedDriver
from tests.support.virtual_time import Run

CHECKS = CheckSettings(interval=10, timeout=4)
DOWN = UpstreamError("connection refused")


class Sink:
    """A fleet that believes one probe, unless told what to think."""

    def __init__(self) -> None:
        self.verdicts: list[str] = []
        self.models: list[tuple[float, Mapping[str, Capabilities]]] = []
        self.thinks: Health | None = None
        self.doubts: str | None = None
        self._last = Health.UNKNOWN

    def probe_succeeded(self, name: str) -> None:
        self.verdicts.append("ok")
        self._last = Health.HEALTHY

    def probe_failed(self, name: str, why: str, *, late: bool) -> None:
        self.verdicts.append(why)
        self._last = Health.UNHEALTHY

    def set_models(self, name: str, models: Mapping[str, Capabilities]) -> None:
        self.models.append((asyncio.get_running_loop().time(), models))

    def list_failed(self, name: str, why: str) -> None:
        self.verdicts.append(f"no list: {why}")

    def model_to_test(self, name: str) -> str | None:
        return self.doubts

    def health(self, name: str) -> Health:
        return self.thinks or self._last


@pytest.fixture
def sink() -> Sink:
    return Sink()


def _prober(sink: Sink, jitter: Callable[[], float] = lambda: 0.5) -> Prober:
    return Prober(cast(Fleet, sink), CHECKS, jitter)


def test_a_defect_of_the_gateway_ends_no_probes(in_virtual_time: Run, sink: Sink, driver: ScriptedDriver) -> None:
    listed: list[float] = []

    def defective(_: object) -> None:
        listed.append(asyncio.get_running_loop().time())
        if len(listed) == 1:
            raise KeyError("a defect")

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(driver), FakeClient({}), on_models=defective)
        await prober.first_round()
        while len(listed) < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(1.0)
        prober.close()

    in_virtual_time(scenario())
    assert sink.verdicts == ["ok"]


def test_the_first_round_ends_when_every_backend_was_probed_once(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    slow = type(driver)()
    slow.delay = 3.0

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("quick", support_of(driver), FakeClient({}))
        prober.add("slow", support_of(slow), FakeClient({}))
        await prober.first_round()
        assert asyncio.get_running_loop().time() == 3.0

    in_virtual_time(scenario())
    assert sink.verdicts == ["ok", "ok"]
    assert len(sink.models) == 2


def test_a_first_round_does_not_wait_for_a_silent_backend(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    slow, silent = type(driver)(), type(driver)()
    slow.delay, silent.delay = 0.2, 3.0

    async def scenario() -> None:
        prober = _prober(sink)
        for name, each in {"quick": driver, "slow": slow, "silent": silent}.items():
            prober.add(name, support_of(each), FakeClient({}))
        await prober.first_round(0.3)
        assert asyncio.get_running_loop().time() == pytest.approx(0.5)
        assert sink.verdicts == ["ok", "ok"]
        await prober.first_round()

    in_virtual_time(scenario())
    assert sink.verdicts == ["ok", "ok", "ok"]


def test_a_backend_known_to_be_healthy_is_probed_after_its_first_requests(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(driver), FakeClient({}), is_healthy=True)
        await prober.first_round()
        assert asyncio.get_running_loop().time() == 0
        await asyncio.sleep(1.1)
        assert (driver.health_checks, driver.discoveries) == ([1.0], [1.0])

    sink.thinks = Health.HEALTHY
    in_virtual_time(scenario())
    assert sink.verdicts == ["ok"]


def test_a_hanging_probe_is_a_failure_after_the_timeout(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    driver.delay = 1e6

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(driver), FakeClient({}))
        await asyncio.sleep(CHECKS.timeout + CHECKS.interval + CHECKS.timeout + 1)

    in_virtual_time(scenario())
    assert sink.verdicts == ["no answer to its health check within 4 s"] * 2
    assert {type(each) for each in sink.verdicts} == {str}, "pages and workers get it"


def test_the_probes_without_an_answer_are_counted_until_one_has_an_answer(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    seen: list[int] = []

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(driver), FakeClient({}))
        for delay in (1e6, 1e6, 0.0, 0.0, 1e6):
            driver.delay, probes = delay, len(sink.verdicts)
            while len(sink.verdicts) == probes:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(1.0)
            seen.append(prober.late_probes("a"))
        prober.close()
        assert prober.late_probes("a") == 0, "it is not probed any more"

    in_virtual_time(scenario())
    assert seen == [1, 2, 0, 0, 1]


def test_a_probe_that_resists_its_cancellation_holds_up_nothing(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    class Stubborn(type(driver)):  # type: ignore[misc]
        async def healthy(self, engine: EngineClient) -> bool:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1e6)
            await asyncio.sleep(1e6)
            return True

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(Stubborn()), FakeClient({}))
        await prober.first_round()
        assert asyncio.get_running_loop().time() == CHECKS.timeout

    in_virtual_time(scenario())
    assert len(sink.verdicts) == 1


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (False, "its driver says that it is not healthy"),
        (UpstreamError("Connection refused"), "Connection refused"),
        (ZeroDivisionError("oops"), "its health check failed with ZeroDivisionError"),
    ],
)
def test_whatever_a_driver_raises_is_a_failure_and_probing_goes_on(
    verdict: bool | Exception, why: str, in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    driver.verdict = verdict

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(driver), FakeClient({}))
        await asyncio.sleep(CHECKS.interval * 1.5)

    in_virtual_time(scenario())
    assert sink.verdicts == [why, why]


def test_a_no_is_explained_by_what_the_engine_answered(in_virtual_time: Run, sink: Sink) -> None:
    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(VllmDriver()), FakeClient({"/health": 503}))
        await prober.first_round()

    in_virtual_time(scenario())
    assert sink.verdicts == ["GET /health answered 503"]


def test_an_engine_that_failed_requests_is_tested_before_it_is_believed(in_virtual_time: Run, sink: Sink) -> None:
    chat: dict[str, Any] = {"/health": {}, "/v1/models": {"data": [{"id": "m"}]}, "/v1/chat/completions": 500}
    engine = FakeClient(chat)

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(VllmDriver()), engine)
        await asyncio.sleep(CHECKS.interval * 1.5)
        answers: tuple[Any, ...] = (DOWN, {}, 404)
        for answer in answers:
            engine.pages["/v1/chat/completions"] = answer
            await asyncio.sleep(CHECKS.interval)

    sink.doubts, sink.thinks = "m", Health.UNHEALTHY
    in_virtual_time(scenario())
    failed = "it failed a test request"
    assert sink.verdicts[:2] == [failed] * 2
    assert f"{failed}: connection refused" in sink.verdicts
    assert sink.verdicts[-1] == "ok", "an answer below 500 says nothing"
    assert engine.bodies[0]["model"] == "m"
    assert engine.bodies[0]["max_tokens"] == 1


def test_a_test_that_takes_long_says_nothing(in_virtual_time: Run, sink: Sink, driver: ScriptedDriver) -> None:
    class Slow(type(driver)):  # type: ignore[misc]
        async def serves(self, engine: EngineClient, model: str) -> bool:
            await asyncio.sleep(1e6)
            return False

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("a", support_of(Slow()), FakeClient({}))
        await prober.first_round()

    sink.doubts = "m"
    in_virtual_time(scenario())
    assert sink.verdicts == ["ok"]


def test_a_model_added_to_an_engine_shows_after_six_probes(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    driver.served = [ServedModel("a")]

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("x", support_of(driver), FakeClient({}))
        await asyncio.sleep(1)
        driver.served = [ServedModel("a"), ServedModel("b", Capabilities(vision=True))]
        await asyncio.sleep(6 * CHECKS.interval)

    in_virtual_time(scenario())
    assert sink.models == [
        (0.0, {"a": Capabilities()}),
        (6 * CHECKS.interval, {"a": Capabilities(), "b": Capabilities(vision=True)}),
    ]


def test_models_are_asked_for_as_soon_as_a_backend_is_healthy_again(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("x", support_of(driver), FakeClient({}))
        await asyncio.sleep(1)
        driver.verdict = False
        await asyncio.sleep(CHECKS.interval)
        driver.verdict = True
        await asyncio.sleep(CHECKS.interval)

    in_virtual_time(scenario())
    assert [when for when, _ in sink.models] == [0.0, 2 * CHECKS.interval]


def test_a_failed_discovery_is_reported_apart_and_tried_again_and_logged_once(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.served = UpstreamError("the list is gone")

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("x", support_of(driver), FakeClient({}))
        await asyncio.sleep(2.5 * CHECKS.interval)
        driver.served = [ServedModel("a")]
        await asyncio.sleep(CHECKS.interval)

    with caplog.at_level(logging.WARNING):
        in_virtual_time(scenario())
    assert sink.verdicts == ["no list: the list is gone", "ok"] * 3 + ["ok"]
    assert sink.models == [(3 * CHECKS.interval, {"a": Capabilities()})]
    assert caplog.text.count("the list is gone") == 1


@pytest.mark.parametrize(
    ("verdict", "health", "pause"),
    [
        (True, Health.HEALTHY, CHECKS.interval),
        (False, Health.UNHEALTHY, CHECKS.interval),
        (True, Health.UNHEALTHY, CHECKS.interval / 5),
        (False, Health.HEALTHY, CHECKS.interval / 5),
    ],
)
def test_a_verdict_in_doubt_is_looked_at_again_soon(
    verdict: bool, health: Health, pause: float, in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    driver.verdict = verdict
    sink.thinks = health

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("x", support_of(driver), FakeClient({}))
        await asyncio.sleep(CHECKS.interval + 1)

    in_virtual_time(scenario())
    assert driver.health_checks[:2] == [0.0, pause]


def test_a_hundred_backends_are_not_probed_in_step(in_virtual_time: Run, sink: Sink, driver: ScriptedDriver) -> None:
    async def scenario() -> None:
        prober = _prober(sink, random.Random(7).random)
        for number in range(100):
            prober.add(f"b{number}", support_of(driver), FakeClient({}))
        await asyncio.sleep(4 * CHECKS.interval)

    in_virtual_time(scenario())
    second_round = driver.health_checks[100:200]
    assert min(second_round) >= 0.75 * CHECKS.interval
    assert max(second_round) <= 1.25 * CHECKS.interval
    busiest = max(sum(t <= other < t + 1 for other in driver.health_checks[100:]) for t in driver.health_checks[100:])
    assert busiest < 40


def test_a_removed_backend_is_heard_of_no_more(in_virtual_time: Run, sink: Sink, driver: ScriptedDriver) -> None:
    driver.delay = 2.0

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("x", support_of(driver), FakeClient({}))
        await asyncio.sleep(1)
        waiting = asyncio.ensure_future(prober.first_round())
        await asyncio.sleep(0)
        prober.remove("x")
        await waiting
        await asyncio.sleep(100)

    in_virtual_time(scenario())
    assert sink.verdicts == []
    assert len(driver.health_checks) == 1


def test_a_backend_may_be_added_again_under_its_name(in_virtual_time: Run, sink: Sink, driver: ScriptedDriver) -> None:
    successor = type(driver)()

    async def scenario() -> None:
        prober = _prober(sink)
        prober.add("x", support_of(driver), FakeClient({}))
        await prober.first_round()
        prober.add("x", support_of(successor), FakeClient({}))
        await asyncio.sleep(1.5 * CHECKS.interval)
        prober.close()
        await asyncio.sleep(10 * CHECKS.interval)

    in_virtual_time(scenario())
    assert (len(driver.health_checks), len(successor.health_checks)) == (1, 2)


def test_an_engines_limit_is_asked_for_with_its_models(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    limits: list[int | None] = []

    async def scenario() -> None:
        driver.limit = 4
        prober = _prober(sink)
        prober.add("a", support_of(driver), FakeClient({}), on_concurrency=limits.append)
        prober.add("b", support_of(driver), FakeClient({}))
        await prober.first_round()
        driver.limit = UpstreamError("busy")
        await asyncio.sleep(7 * CHECKS.interval)
        driver.limit = None
        await asyncio.sleep(7 * CHECKS.interval)
        prober.close()

    in_virtual_time(scenario())
    assert limits == [4, None], "a question without an answer changes nothing"


def test_models_are_listed_in_the_same_step_as_the_backend_becomes_healthy(
    in_virtual_time: Run, sink: Sink, driver: ScriptedDriver
) -> None:
    """A request in between would be refused, for its backend would have no health yet."""
    seen: set[tuple[int, tuple[str, ...]]] = set()

    async def scenario() -> None:
        driver.served = [ServedModel("m")]
        prober = _prober(sink)
        prober.add("a", support_of(driver), FakeClient({}), on_concurrency=lambda _: None)
        while not sink.verdicts:
            await asyncio.sleep(0)
            seen.add((len(sink.models), tuple(sink.verdicts)))
        prober.close()

    in_virtual_time(scenario())
    assert seen == {(0, ()), (1, ("ok",))}
