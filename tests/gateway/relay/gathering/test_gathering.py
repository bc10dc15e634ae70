"""Requests without a stream that survive their engine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.support.model_engine import Break, StartModelEngine
from tests.support.scripted_engine import Cut, StartEngine
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
VLLM = {"driver": "vllm"}
GATHER = {"gather": True}


def body(path: str = CHAT, **more: Any) -> dict[str, object]:
    question: dict[str, object] = (
        {"messages": [{"role": "user", "content": "Tell"}]} if path == CHAT else {"prompt": "Tell"}
    )
    return {"model": MODEL, "max_tokens": 40, **question, **more}


def streamed(path: str = CHAT) -> Any:
    asked = body(path, stream=True, stream_options={"include_usage": True})
    return read_stream(b"".join(stream(path, msgspec.json.encode(asked))))


async def ask(gateway: ServedGateway, path: str, fields: Mapping[str, object]) -> dict[str, Any]:
    reply = await gateway.ask(gateway.post(fields, path=path))
    assert (reply.status, reply.header("content-type")) == (200, "application/json"), reply.body
    assert reply.header("content-length") == str(len(reply.body))
    found: dict[str, Any] = msgspec.json.decode(reply.body)
    return found


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("cuts", [0, 1, 2])
async def test_an_answer_is_whole_however_often_its_engine_breaks(
    house: OpenGateway, model_engine: StartModelEngine, path: str, cuts: int
) -> None:
    engines = [await model_engine(), await model_engine(), await model_engine()]
    gateway = await house(*engines, backend=VLLM, routing=GATHER)
    for engine in engines[:cuts]:
        engine.breaks = [Break(5, Cut.RESET)]
    answer, whole = await ask(gateway, path, body(path)), streamed(path)
    [choice] = answer["choices"]
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert (text, choice["finish_reason"]) == (whole.text, whole.finish)
    assert {name: value for name, value in answer["usage"].items() if name.endswith("_tokens")} == whole.counts
    assert "token_ids" not in choice
    assert sum(len(engine.calls) for engine in engines) == cuts + 1


async def test_an_answer_that_cannot_be_continued_is_an_error_with_a_status(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    engines = [await model_engine(), await model_engine()]
    gateway = await house(*engines, backend=VLLM, routing=GATHER)
    for engine in engines:
        engine.breaks = [Break(5, Cut.RESET)] * 9
    reply = await gateway.ask(gateway.post(body()))
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert reply.header("content-type") == "application/json"


@pytest.mark.parametrize("more", [{"n": 2}, {"logprobs": True}, {"tools": [{}]}, {"stream": True}])
async def test_other_requests_are_asked_as_they_are(
    house: OpenGateway, model_engine: StartModelEngine, more: dict[str, Any]
) -> None:
    engine = await model_engine()
    gateway = await house(engine, await model_engine(), backend=VLLM, routing={**GATHER, "broken_stream": "error"})
    said, kind = (
        (b"data: {}\n\ndata: [DONE]\n\n", b"text/event-stream") if "stream" in more else (b"{}", b"application/json")
    )
    engine.scripts = [(engine.answer(said).replace(b"application/json", kind),)]
    reply = await gateway.ask(gateway.post(body(**more)))
    assert reply.body == said
    assert engine.asked() == body(**more)


async def test_a_client_that_asks_for_a_stream_gets_one(house: OpenGateway, model_engine: StartModelEngine) -> None:
    gateway = await house(await model_engine(), await model_engine(), backend=VLLM, routing=GATHER)
    reply = await gateway.ask(gateway.post(body(stream=True)))
    assert reply.header("content-type") == "text/event-stream"
    assert read_stream(reply.body).text == streamed().text


async def test_a_single_replica_is_asked_for_no_stream(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engine = await model_engine()
    gateway = await house(engine, backend=VLLM, routing=GATHER)
    assert (await gateway.ask(gateway.post(body()))).status == 200
    assert engine.asked() == body()


@pytest.mark.parametrize("status", [200, 400, 503])
async def test_an_engine_that_does_not_stream_is_passed_on(
    house: OpenGateway, model_engine: StartModelEngine, status: int
) -> None:
    engines = [await model_engine(), await model_engine()]
    gateway = await house(*engines, backend=VLLM, routing={**GATHER, "max_retries": 0})
    for engine in engines:
        engine.scripts = [(engine.answer(b'{"own": 1}', status),)]
    reply = await gateway.ask(gateway.post(body()))
    assert (reply.status, reply.body) == (status, b'{"own": 1}')


async def test_an_operator_may_move_it(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM, routing=GATHER)
    source.gate = (6, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(body(), b"x-request-id: r1"))
    await gateway.until(
        lambda: any(live.why_not_movable is None and live.tokens().output for live in gateway.relay.live)
    )
    await gateway.relay.move("r1", "b")
    answer = msgspec.json.decode((await client.reply()).body)
    assert answer["choices"][0]["message"]["content"] == streamed().text


async def test_a_request_that_only_its_engine_can_read_is_asked_as_it_is(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, backend=VLLM, routing={**GATHER, "broken_stream": "error"})
    odd = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"note":"\xff"}'
    assert (await gateway.ask(gateway.post(odd))).status == 200
    assert [call.body for call in served.calls] == [odd]
