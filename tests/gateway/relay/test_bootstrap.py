"""Two engines get a request at the same time: one reads the prompt, and hands it over to the one that answers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.support.fake_sglang import MODEL, WORDS, FakeSglang
from tests.support.fake_sglang_pair import FakeDecode, FakePrefill
from tests.support.model_engine import ModelEngine, StartModelEngine
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import Cut
from tests.support.served_gateway import OpenGateway, ServedGateway

CHAT = "/v1/chat/completions"
BODY: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "max_tokens": 4}
ROLES = {"a": "prefill", "b": "prefill", "y": "decode", "z": "decode"}
INFORMATION = b'{"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 8998}'


@pytest.fixture
def pairs() -> Iterator[tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]]:
    a, b = FakePrefill(), FakePrefill()
    y, z = FakeDecode(a, b), FakeDecode(a, b)
    with a, b, y, z:
        yield a, b, y, z


async def opened(house: OpenGateway, engines: dict[str, FakeSglang | ModelEngine]) -> ServedGateway:
    tables = {
        name: {"url": engine.url, "driver": "sglang", "role": ROLES[name], "models": [MODEL]}
        for name, engine in engines.items()
    }
    return await house(backends=tables, routing={"strategy": "llumnix_load"})


async def ask(gateway: ServedGateway, **more: object) -> RawResponse:
    return await gateway.ask(gateway.post({**BODY, **more}, path=CHAT))


def text(reply: RawResponse) -> str:
    return str(msgspec.json.decode(reply.body)["choices"][0]["message"]["content"])


@pytest.mark.parametrize("stream", [False, True])
async def test_both_engines_get_the_same_request_and_meet(
    stream: bool, house: OpenGateway, pairs: tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
) -> None:
    a, _, y, _ = pairs
    gateway = await opened(house, {"a": a, "y": y})
    reply = await ask(gateway, stream=stream)
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "y")
    assert reply.body.endswith(b"data: [DONE]\n\n") if stream else text(reply) == "".join(WORDS[:4])
    assert a.bodies == y.bodies
    [asked] = a.bodies
    assert (asked["bootstrap_host"], asked["bootstrap_port"]) == ("127.0.0.1", a.bootstrap.port)
    assert {**BODY, "stream": stream}.items() <= asked.items()
    [decision] = gateway.relay.context.decisions.last(9)
    assert (decision["prefill"], decision["chosen"]) == (f"{MODEL}@a", f"{MODEL}@y")
    await gateway.quiet()


async def test_each_request_has_a_room_of_its_own(
    house: OpenGateway, pairs: tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
) -> None:
    a, _, y, _ = pairs
    gateway = await opened(house, {"a": a, "y": y})
    for _ in range(3):
        assert (await ask(gateway)).status == 200
    assert len({body["bootstrap_room"] for body in y.bodies}) == 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["gone", "aborts"])
async def test_another_engine_reads_the_prompt_of_one_that_fails(
    fault: str, stream: bool, house: OpenGateway, pairs: tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
) -> None:
    """The engine that was to answer would wait for five minutes."""
    a, b, y, _ = pairs
    a.gone, a.fails = fault == "gone", 500 if fault == "aborts" else 0
    gateway = await opened(house, {"a": a, "b": b, "y": y})
    reply = await ask(gateway, stream=stream)
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "y")
    assert reply.header("x-enginehouse-reason") == "retry"
    assert gateway.relay.context.counters.retries == {"a": 1}
    assert b.bodies[-1] in y.bodies  # of which the first may come last
    await gateway.quiet()


async def test_another_engine_answers_for_one_that_fails(
    house: OpenGateway, pairs: tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
) -> None:
    a, _, y, z = pairs
    y.fails = 500
    gateway = await opened(house, {"a": a, "y": y, "z": z})
    reply = await ask(gateway)
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "z")
    assert gateway.relay.context.counters.retries == {"y": 1}
    assert z.bodies[-1] in a.bodies  # of which the first may come last
    assert z.bodies[-1] != y.bodies[-1], "a new room"
    await gateway.quiet()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_the_reader_refuses_as_wrong_is_not_sent_again(
    stream: bool, house: OpenGateway, pairs: tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
) -> None:
    a, b, y, _ = pairs
    a.fails = 400
    gateway = await opened(house, {"a": a, "b": b, "y": y})
    reply = await ask(gateway, stream=stream)
    assert reply.status == 400
    assert b"Prefill transfer failed" in reply.body
    assert not b.bodies
    await gateway.quiet()


@pytest.mark.parametrize("left", ["a", "y"])
async def test_without_the_other_one_neither_is_asked(
    left: str, house: OpenGateway, pairs: tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
) -> None:
    a, _, y, _ = pairs
    engine = a if left == "a" else y
    gateway = await opened(house, {left: engine})
    reply = await ask(gateway)
    assert reply.status == 503
    assert engine.bodies == []


async def test_a_server_that_reads_no_prompts_is_named(
    house: OpenGateway, pairs: tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
) -> None:
    a, _, y, _ = pairs
    a.mode = "decode"
    gateway = await opened(house, {"a": a, "y": y})
    reply = await ask(gateway)
    assert reply.status == 502
    assert b"--disaggregation-mode decode" in reply.body
    assert a.bodies == y.bodies == []


async def test_the_reader_is_cancelled_when_the_client_leaves(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, answers = await model_engine(), await model_engine()
    reads.scripts = [(reads.answer(INFORMATION),), ()]
    answers.scripts = [()]
    gateway = await opened(house, {"a": reads, "y": answers})
    client = await gateway.client()
    client.send(gateway.post(BODY, path=CHAT))
    await gateway.until(lambda: len(reads.calls) == 2 and len(answers.calls) == 1)
    client.close()
    await reads.calls[1].closed.wait()
    await answers.calls[0].closed.wait()
    await gateway.quiet()


async def test_the_reader_is_cancelled_when_the_other_one_breaks(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, answers = await model_engine(), await model_engine()
    reads.scripts = [(reads.answer(INFORMATION),), ()]
    answers.scripts = [(Cut.RESET,)]
    gateway = await opened(house, {"a": reads, "y": answers})
    reply = await ask(gateway)
    assert reply.status in (502, 503)
    await reads.calls[1].closed.wait()
    await gateway.quiet()
