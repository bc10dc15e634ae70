"""What drivers raise and return: it is logged and blamed on them, and takes nothing down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, cast, get_type_hints

import pytest

from enginehouse import ConfigError, Driver, Launcher
from enginehouse.domain.plugin_id import PluginId
from enginehouse.drivers import (
    EngineClient,
    LaunchSpec,
    LoadedModel,
    ModelFacts,
    ServedModel,
    SupportsFigures,
    SupportsLaunch,
    SupportsLoading,
    SupportsSleep,
)
from enginehouse.engines.guards import guarded_driver
from enginehouse.errors import PluginFailed, UpstreamError
from enginehouse.interfaces.driver_support import SUPPORTS, DriverSupport
from enginehouse.launchers import EngineProcess
from enginehouse.plugin_manager.kinds import methods
from enginehouse.rescheduling import InstanceStatus
from enginehouse.telemetry import plugin_failures
from tests.support.fake_engines import FakeClient
from tests.support.unspeakable import Unspeakable, UnspeakableError

SPEC = LaunchSpec(model="m", path="", port=1)
FAILURES = [KeyError("secret"), SystemExit(3), KeyboardInterrupt(), UnspeakableError()]


class Answers(Driver, SupportsLaunch, SupportsLoading, SupportsSleep, SupportsFigures):
    """Answers every question with ``answer``, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def _given(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def command(self, spec: LaunchSpec) -> Any:
        return self._given()

    def environment(self, spec: LaunchSpec) -> Any:
        return self._given()

    def why_not(self, spec: LaunchSpec) -> Any:
        return self._given()

    def inspect(self, spec: LaunchSpec) -> Any:
        return self._given()

    def find_models(self, path: object) -> Any:
        return self._given()

    async def healthy(self, engine: EngineClient) -> bool:
        return cast(bool, self._given())

    async def models(self, engine: EngineClient) -> Any:
        return self._given()

    async def concurrency(self, engine: EngineClient) -> int | None:
        return cast(int, self._given())

    async def status(self, engine: EngineClient) -> Any:
        return self._given()

    async def load(self, engine: EngineClient, model: str) -> None:
        self._given()

    async def unload(self, engine: EngineClient, model: str) -> None:
        self._given()

    async def loaded(self, engine: EngineClient) -> Any:
        return self._given()

    async def sleep(self, engine: EngineClient) -> bool:
        return cast(bool, self._given())

    async def wake(self, engine: EngineClient) -> bool:
        return cast(bool, self._given())


def guarded(answer: object) -> DriverSupport:
    return guarded_driver(PluginId("driver", "acme", "acme-engines"), Answers(answer))


def loading(driver: DriverSupport) -> SupportsLoading:
    assert driver.loading is not None
    return driver.loading


Ask = Callable[[DriverSupport], Coroutine[Any, Any, object]]
QUESTIONS: dict[str, Ask] = {
    "healthy": lambda driver: driver.driver.healthy(FakeClient({})),
    "models": lambda driver: driver.driver.models(FakeClient({})),
    "concurrency": lambda driver: driver.figures.concurrency(FakeClient({})),
    "status": lambda driver: driver.figures.status(FakeClient({})),
    "load": lambda driver: loading(driver).load(FakeClient({}), "m"),
    "unload": lambda driver: loading(driver).unload(FakeClient({}), "m"),
    "loaded": lambda driver: loading(driver).loaded(FakeClient({})),
    "sleep": lambda driver: driver.sleep.sleep(FakeClient({})),
    "wake": lambda driver: driver.sleep.wake(FakeClient({})),
}


@pytest.fixture(autouse=True)
def unlimited_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_failures, "_limit", plugin_failures.RateLimit(0.0))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_what_a_driver_raises_names_the_driver_and_no_more(
    question: str, failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PluginFailed) as told:
        await asyncio.ensure_future(QUESTIONS[question](guarded(failure)))  # SystemExit ends a loop from a task
    name = type(failure).__name__
    assert str(told.value) == f"The driver 'acme' of plugin 'acme-engines' failed with {name}"
    assert told.value.details == {"kind": "driver", "type": "acme", "plugin": "acme-engines"}
    [record] = caplog.records
    assert logging.Formatter().format(record).count("Traceback")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("healthy", None),
        ("healthy", Unspeakable()),
        ("models", None),
        ("models", ["llama"]),
        ("models", [ServedModel(cast(Any, 3))]),
        ("concurrency", "4"),
        ("concurrency", True),
        ("status", {}),
        ("loaded", ["m"]),
        ("sleep", 1),
        ("wake", "yes"),
    ],
)
async def test_a_wrong_answer_is_blamed_on_the_driver(question: str, answer: object) -> None:
    with pytest.raises(PluginFailed, match=rf"driver 'acme' .* returned an object of type \w+ from {question}"):
        await QUESTIONS[question](guarded(answer))


@pytest.mark.parametrize("question", ["command", "environment", "why_not", "inspect", "find_models"])
@pytest.mark.parametrize("answer", [7, KeyError("secret")])
def test_a_wrong_answer_about_a_launch_is_blamed_too(question: str, answer: object) -> None:
    with pytest.raises(PluginFailed, match=r"driver 'acme' .* (returned an object of type int from|failed with Key)"):
        getattr(guarded(answer).launch, question)(SPEC)


@pytest.mark.parametrize("answer", [True, False])
async def test_right_answers_pass(answer: bool) -> None:
    assert await guarded(answer).driver.healthy(FakeClient({})) is answer
    assert await guarded([ServedModel("m")]).driver.models(FakeClient({})) == [ServedModel("m")]
    assert await guarded(4).figures.concurrency(FakeClient({})) == 4
    assert await guarded(None).figures.concurrency(FakeClient({})) is None
    assert await guarded(InstanceStatus(step_id=7)).figures.status(FakeClient({})) == InstanceStatus(step_id=7)
    assert await loading(guarded([LoadedModel("m")])).loaded(FakeClient({})) == [LoadedModel("m")]
    assert guarded("no file").launch.why_not(SPEC) == "no file"
    assert guarded(ModelFacts(memory=7)).launch.inspect(SPEC) == ModelFacts(memory=7)


async def test_errors_of_enginehouse_pass() -> None:
    with pytest.raises(UpstreamError, match="connection refused"):
        await guarded(UpstreamError("connection refused")).driver.healthy(FakeClient({}))
    with pytest.raises(ConfigError, match="no such path"):
        guarded(ConfigError("no such path")).launch.command(SPEC)


async def test_an_error_of_ours_without_a_text_is_a_failure() -> None:
    class Speechless(UpstreamError):
        def __str__(self) -> str:
            raise ValueError

    with pytest.raises(PluginFailed, match="failed with Speechless"):
        await guarded(Speechless("")).driver.healthy(FakeClient({}))


async def test_the_cancellation_of_a_question_passes() -> None:
    class Waits(Answers):
        async def healthy(self, engine: EngineClient) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return True

    asked = asyncio.Event()
    task = asyncio.ensure_future(guarded_driver(PluginId("driver", "acme"), Waits(None)).driver.healthy(FakeClient({})))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.skipif(not hasattr(asyncio.Task, "cancelling"), reason="Python 3.10 does not tell them apart")
async def test_a_driver_cannot_cancel_who_asks_it() -> None:
    with pytest.raises(PluginFailed, match="failed with CancelledError"):
        await guarded(asyncio.CancelledError()).driver.healthy(FakeClient({}))


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_driver_that_cannot_make_its_launch_line(failure: BaseException) -> None:
    launch = guarded(failure).launch
    for ask in (launch.command, launch.environment):
        with pytest.raises(PluginFailed, match=f"failed with {type(failure).__name__}"):
            ask(SPEC)


@pytest.mark.parametrize("answer", [1, "engine --port 1", ["engine", 1], Unspeakable()])
def test_a_launch_line_of_something_else_than_words(answer: object) -> None:
    with pytest.raises(PluginFailed, match=r"from command instead of Sequence\[str\] \| None"):
        guarded(answer).launch.command(SPEC)


@pytest.mark.parametrize("answer", [None, {"A": 1}, ["A"], Unspeakable()])
def test_an_environment_of_something_else_than_texts(answer: object) -> None:
    with pytest.raises(PluginFailed, match=r"from environment instead of Mapping\[str, str\]"):
        guarded(answer).launch.environment(SPEC)


def test_every_method_of_drivers_launchers_and_processes_declares_what_it_returns() -> None:
    for interface in (Driver, *SUPPORTS, Launcher, EngineProcess):
        for name in methods(interface):
            assert "return" in get_type_hints(getattr(interface, name)), name
