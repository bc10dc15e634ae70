"""A model may have another name at its engine, and clients find the one that they asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from enginehouse.relay.events.sse import read_events
from tests.support.model_engine import Break, StartModelEngine
from tests.support.scripted_engine import Cut, StartEngine, chunk
from tests.support.served_gateway import MODEL, OpenGateway

UPSTREAM = {"models": {MODEL: {"upstream": "org/m-Instruct"}}}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = b'{"id":"c","model":"org/m-Instruct","choices":[{"message":{"content":"say \\"model\\":\\"x\\""}}]}'
EVENTS = b'data: {"id":"c","model": "org/m-Instruct","choices":[{"delta":{"content":"%d"}}]}\n\n'


def model_of(body: bytes) -> Any:
    return msgspec.json.decode(body)["model"]


async def test_an_engine_gets_its_own_name_and_the_client_the_one_it_asked_for(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, backend=UPSTREAM, routing={"aliases": {"gpt-4": MODEL}})
    for asked in (MODEL, "gpt-4"):
        served.says(ANSWER)
        reply = await gateway.ask(gateway.post({"model": asked}))
        assert model_of(served.calls[-1].body) == "org/m-Instruct"
        assert reply.body == ANSWER.replace(b"org/m-Instruct", asked.encode())
        assert reply.header("x-enginehouse-model") == MODEL


async def test_the_name_that_the_engine_has_is_no_other_name_of_the_model(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine(), backend=UPSTREAM)
    assert (await gateway.ask(gateway.post({"model": "org/m-Instruct"}))).status == 404


@pytest.mark.parametrize(("setting", "name"), [("asked", b"gpt-4"), ("engine", b"org/m-Instruct")])
async def test_every_event_of_a_stream_has_the_name(
    house: OpenGateway, engine: StartEngine, setting: str, name: bytes
) -> None:
    served, gate = await engine(), asyncio.Event()
    routing = {"aliases": {"gpt-4": MODEL}, "answer_model": setting}
    gateway = await house(served, backend=UPSTREAM, routing=routing)
    told = [EVENTS % number for number in range(4)]
    served.streams(told[0] + told[1], gate, told[2], told[3], b"data: [DONE]\n\n", served.END)
    client = await gateway.client()
    client.send(gateway.post({"model": "gpt-4"}, stream=True))
    await client.head()
    got = await client.chunk()
    gate.set()
    while b"[DONE]" not in got:
        got += await client.chunk()
    assert got == b"".join(told).replace(b"org/m-Instruct", name) + b"data: [DONE]\n\n"


async def test_a_name_is_found_across_the_pieces_of_a_large_answer(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, backend=UPSTREAM, server={"hold_answers": 0})
    start, end = b'{"data":"' + b"x" * 5000 + b'","mod', b'el":"org/m-Instruct","usage":{}}'
    served.plays(HEAD, chunk(start), chunk(end), b"0\r\n\r\n")
    reply = await gateway.ask(gateway.post())
    assert reply.body == (start + end).replace(b"org/m-Instruct", b"m")


@pytest.mark.parametrize("body", [b'[{"embedding":[1]}]', b'{"model":"org/m-Instruct","x":NaN}', b'{"ok":true}'])
async def test_what_has_no_name_passes(house: OpenGateway, engine: StartEngine, body: bytes) -> None:
    served = await engine()
    gateway = await house(served, backend=UPSTREAM)
    served.says(body)
    reply = await gateway.ask(gateway.post(path="/v1/embeddings"))
    assert reply.body == body.replace(b"org/m-Instruct", b"m")


async def test_a_form_has_the_engines_name(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, backend=UPSTREAM)
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n'
    head = b"content-type: multipart/form-data; boundary=x"
    assert (await gateway.ask(gateway.post(form, head, path="/v1/audio/transcriptions"))).status == 200
    assert b"\r\n\r\norg/m-Instruct\r\n--x" in (await served.call()).body


async def test_a_stream_is_continued_where_the_model_has_another_name(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    one, other = await model_engine(), await model_engine()
    named = {
        name: {"url": each.url, "driver": "vllm", "models": {MODEL: {"upstream": f"{name}/m"}}}
        for name, each in (("a", one), ("b", other))
    }
    gateway = await house(backends=named, routing={"strategy": "priority_only"})
    one.breaks = [Break(5, Cut.RESET)]
    chat: dict[str, object] = {"messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 20}
    reply = await gateway.ask(gateway.post(chat))
    assert b"[DONE]" in reply.body
    assert [each.asked()["model"] for each in (one, other)] == ["a/m", "b/m"]
    events = [
        msgspec.json.decode(event.data) for event in read_events(reply.body) if event.data not in (None, b"[DONE]")
    ]
    assert {event.get("model", "m") for event in events} == {"m"}
