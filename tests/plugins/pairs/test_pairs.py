"""What the engine that reads the prompt is asked, and what its answers mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse import InvalidRequest, Role, Route
from enginehouse.drivers import EngineResponse, support_of
from enginehouse.errors import UpstreamError, UpstreamTimeout
from enginehouse.hand_overs import PrefillEngine
from enginehouse.routing_facts import Reason
from enginehouse_kit.testing import FakeEngineClient, candidate, create
from enginehouse_pairs.pairs import Pairs

READS, ANSWERS = candidate("a", "m", role=Role.PREFILL), candidate("b", "m", role=Role.DECODE)
ROUTE = Route("m", ANSWERS, Reason.MATCH, ("m",), prefill=READS)
BODY = b'{"model":"m","prompt":"Tell","max_tokens":40,"stream":true}'
INFORMATION = {"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 8998}
OK = EngineResponse(200, [], b"{}")


class Engine(PrefillEngine):
    """Gives ``answer``; an exception is raised instead. ``failures``: what is counted against it."""

    path = "/v1/completions"
    host = "10.0.0.3"

    def __init__(self, type: str, answer: EngineResponse | Exception = OK) -> None:
        self.drivers = dict.fromkeys("ab", support_of(create("driver", type)))
        self.process = object()
        self.client: FakeEngineClient = FakeEngineClient({"/server_info": INFORMATION})
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.failures: list[str] = []

    async def take(self) -> None:
        """There is no queue."""

    async def ask(self, body: bytes) -> EngineResponse:
        self.asked.append(msgspec.json.decode(body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def failed(self, why: str) -> None:
        self.failures.append(why)


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        EngineResponse(200, [], b"nonsense"),
        EngineResponse(200, [], b'{"kv_transfer_params":null}'),
        EngineResponse(503, [], b'{"kv_transfer_params":{"a":1}}'),
        UpstreamError("gone"),
        UpstreamTimeout("late"),
    ],
)
async def test_an_engine_that_keeps_nothing_leaves_the_prompt_to_the_other_one(
    answer: EngineResponse | Exception,
) -> None:
    assert await Pairs().prepare(Engine("vllm", answer), ROUTE, BODY) == (BODY, None)


@pytest.mark.parametrize(("status", "failures"), [(400, 0), (429, 0), (501, 0), (500, 1), (503, 1)])
async def test_a_server_error_counts_against_the_engine_that_should_read_the_prompt(status: int, failures: int) -> None:
    engine = Engine("vllm", EngineResponse(status, [], b""))
    await Pairs().prepare(engine, ROUTE, BODY)
    assert len(engine.failures) == failures


async def test_a_prompt_goes_on_in_the_engines_own_words() -> None:
    engine = Engine("vllm", EngineResponse(200, [], b'{"kv_transfer_params":{"id":"r","more":[1]}}'))
    body, go_on = await Pairs().prepare(engine, ROUTE, BODY)
    assert go_on is None
    assert msgspec.json.decode(body)["kv_transfer_params"] == {"id": "r", "more": [1]}
    [asked] = engine.asked
    assert (asked["max_tokens"], asked["stream"]) == (1, False)


@pytest.mark.parametrize(
    ("answer", "error", "failures"),
    [
        (EngineResponse(400, [], b"no"), InvalidRequest, 0),
        (EngineResponse(429, [], b"busy"), UpstreamError, 0),
        (EngineResponse(500, [], b"no"), UpstreamError, 1),
        (EngineResponse(501, [], b"no"), UpstreamError, 0),
        (EngineResponse(200, [], b'data: {"error":{"message":"no","code":400}}\n\n'), InvalidRequest, 0),
        (EngineResponse(200, [], b'data: {"error":{"message":"no","code":500}}\n\n'), UpstreamError, 1),
        (UpstreamError("gone"), UpstreamError, 0),
    ],
)
async def test_a_refusal_is_for_the_client_or_for_another_engine(
    answer: EngineResponse | Exception, error: type[Exception], failures: int
) -> None:
    engine, pairs = Engine("sglang", answer), Pairs()
    _, go_on = await pairs.prepare(engine, ROUTE, BODY)
    assert go_on is not None
    with pytest.raises(error):
        await go_on()
    assert len(engine.failures) == failures


async def test_the_port_is_asked_for_once_in_the_life_of_an_engine() -> None:
    engine, pairs = Engine("sglang"), Pairs()
    for _ in range(3):
        body, go_on = await pairs.prepare(engine, ROUTE, BODY)
        assert go_on is not None
        await go_on()
        assert msgspec.json.decode(body)["bootstrap_port"] == 8998
    assert engine.client.asked == ["/server_info"]
    engine.process = object()
    await pairs.prepare(engine, ROUTE, BODY)
    assert engine.client.asked == ["/server_info"] * 2


async def test_the_port_is_asked_for_again_after_a_failure() -> None:
    engine, pairs = Engine("sglang", UpstreamError("gone")), Pairs()
    _, go_on = await pairs.prepare(engine, ROUTE, BODY)
    assert go_on is not None
    with pytest.raises(UpstreamError):
        await go_on()
    await pairs.prepare(engine, ROUTE, BODY)
    assert engine.client.asked == ["/server_info"] * 2


async def test_an_engine_that_reads_no_prompts_is_at_fault() -> None:
    engine = Engine("sglang")
    engine.client.pages["/server_info"] = {"disaggregation_mode": "decode"}
    with pytest.raises(UpstreamError, match="decode"):
        await Pairs().prepare(engine, ROUTE, BODY)
    assert len(engine.failures) == 1


async def test_ports_of_backends_that_are_gone_are_forgotten() -> None:
    engine, pairs = Engine("sglang"), Pairs()
    await pairs.prepare(engine, ROUTE, BODY)
    engine.drivers.pop("a")
    other = Route("m", READS, Reason.MATCH, ("m",), prefill=ANSWERS)
    await pairs.prepare(engine, other, BODY)
    assert set(vars(pairs)["_ports"]) == {"b"}
