"""``check_driver`` on engines that run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from enginehouse.drivers import Continuation, EngineClient, EngineResponse, PartialAnswer, ServedModel
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.checks.live_engine import HttpEngineClient, _chat
from enginehouse_kit.drivers import OpenAICompatibleDriver
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.testing import check_driver, check_live_engine
from enginehouse_sim import SimDriver
from enginehouse_vllm import VllmDriver


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("tiny", tpot="5ms", context_length=8192) as engine:
        yield engine


@pytest.mark.parametrize("driver", [SimDriver, VllmDriver])
def test_drivers_of_the_simulated_engine_pass(driver: type[SimDriver | VllmDriver], engine: SimEngine) -> None:
    check_driver(driver, engine.url, "tiny")


class Wrong(SimDriver):
    """A driver with one fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.metrics_path = "/v1/models" if fault == "metrics" else "/metrics"

    async def healthy(self, engine: EngineClient) -> bool:
        return self.fault != "health" and await super().healthy(engine)

    async def models(self, engine: EngineClient) -> list[ServedModel]:
        return [] if self.fault == "models" else list(await super().models(engine))

    async def status(self, engine: EngineClient) -> InstanceStatus:
        return InstanceStatus() if self.fault == "status" else await super().status(engine)

    def continuation(self, answer: PartialAnswer) -> Continuation:
        made = super().continuation(answer)
        if self.fault == "text" and not made.exact:
            return msgspec.structs.replace(made, skip=1)
        return msgspec.structs.replace(made, path="/nowhere") if self.fault == "refused" else made

    def continuable(self, path: str, body: bytes) -> bytes:
        if self.fault == "stream":
            return body.replace(b'"stream": true', b'"stream": false')
        return super().continuable(path, body)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("health", "healthy must be true"),
        ("models", "models must list 'tiny'"),
        ("status", "status must count a running request"),
        ("stream", "a continuable body must be answered as it is without"),
        ("text", "by text must begin where the text ends"),
        ("refused", "by tokens must be answered with 200, got 404"),
        ("metrics", "must be a page of Prometheus metrics"),
    ],
)
def test_a_fault_is_found(fault: str, message: str, engine: SimEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse_kit.checks.live_engine._IDLE_S", 1.0)
    with pytest.raises(AssertionError, match=message):
        check_live_engine(Wrong(fault), engine.url, "tiny")


def test_an_engine_without_figures_is_not_asked_for_them(engine: SimEngine) -> None:
    class NoFigures(OpenAICompatibleDriver):
        async def status(self, engine: EngineClient) -> InstanceStatus | None:
            return None

    check_live_engine(NoFigures(), engine.url, "tiny")


def test_an_unreachable_engine_fails_the_check() -> None:
    with pytest.raises(Exception, match="cannot be reached"):
        check_live_engine(SimDriver(), "http://127.0.0.1:9", "tiny")


def test_an_answer_that_is_all_thought_says_what_its_stream_says() -> None:
    class Thinks(HttpEngineClient):
        def ask(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
            answer = b'{"choices":[{"message":{"content":null}}],"usage":{"completion_tokens":8}}'
            return EngineResponse(200, [], answer)

    assert _chat(Thinks("http://127.0.0.1"), {}) == ""
