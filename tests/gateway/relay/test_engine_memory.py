"""What engines make the gateway hold is bounded, and what has no room is dropped with a reason."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response

from enginehouse.domain.errors import CannotContinue, Overloaded, UpstreamError
from enginehouse.relay.engine_memory import EngineMemory, EngineShare
from enginehouse.relay.upstream.client import Client
from tests.support.model_engine import StartModelEngine
from tests.support.noted_records import NotedRecords
from tests.support.scripted_engine import StartEngine, chunk
from tests.support.served_gateway import MODEL, OpenGateway
from tests.support.waiting import until
from tests.support.web_sockets import Dial, StartSocketEngine, code_of, refusal_of

MIB = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
CHAT: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}]}


def event(text: str = "", ids: list[int] | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "token_ids": ids or []}
    return b"data: " + msgspec.json.encode({"id": "c", "choices": [choice]}) + b"\n\n"


def test_a_share_is_dropped_as_a_whole() -> None:
    memory = EngineMemory(most=100)
    one, other = EngineShare(memory, "question", 80), EngineShare(memory, "gathered", 80)
    assert (one.take(50), other.take(40)) == ("", "")
    assert "server.max_engine_memory" in other.take(20)
    assert memory.held == 50
    assert one.take(31) == "it takes more than 80 bytes"
    assert (memory.held, dict(memory.dropped)) == (0, {"question": 1, "gathered": 1})


@pytest.mark.parametrize(("path", "most"), [("/health", MIB), ("/slots?x=1", MIB), ("/v1/models", 4 * MIB)])
async def test_an_answer_to_a_question_has_a_limit(
    house: OpenGateway, engine: StartEngine, path: str, most: int
) -> None:
    served = await engine()
    gateway = await house(served)
    upstream = gateway.relay.context.upstreams["a"]
    client, memory = Client(upstream, 5.0), upstream.outside.engine_memory
    served.says(b" " * (most - 1000))
    assert len((await client.request("GET", path)).body) == most - 1000
    served.plays(HEAD, *[chunk(b" " * MIB)] * 8, asyncio.Event())
    with pytest.raises(UpstreamError, match=f"too large: it takes more than {most} bytes"):
        await client.request("GET", path)
    assert (memory.held, dict(memory.dropped)) == (0, {"question": 1})


async def test_a_question_about_a_long_prompt_may_have_a_long_answer(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.says(b" " * (3 * MIB))
    client = Client(gateway.relay.context.upstreams["a"], 5.0)
    assert (await client.request("POST", "/tokenize", b"x" * MIB)).status == 200


async def test_without_room_a_question_is_no_verdict_on_its_engine(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    memory = gateway.relay.context.upstreams["a"].outside.engine_memory
    memory.most = 1000
    served.says(b" " * 2000)
    with pytest.raises(Overloaded, match=r"server\.max_engine_memory"):
        await Client(gateway.relay.context.upstreams["a"], 5.0).request("GET", "/health")
    assert (memory.held, dict(memory.dropped)) == (0, {"question": 1})


async def test_a_held_answer_is_counted_until_it_is_whole(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    memory, rest = gateway.relay.context.upstreams["a"].outside.engine_memory, asyncio.Event()
    served.plays(HEAD, chunk(b"[" + b" " * 1000), rest, chunk(b"]"), b"0\r\n\r\n")
    asking = asyncio.ensure_future(gateway.ask())
    await until(lambda: memory.held == 1001)
    rest.set()
    assert len((await asking).body) == 1002
    await gateway.quiet()
    assert (memory.held, memory.dropped) == (0, {})


async def test_a_held_answer_whose_client_leaves_is_no_longer_counted(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    memory = gateway.relay.context.upstreams["a"].outside.engine_memory
    served.plays(HEAD, chunk(b"[" + b" " * 1000), asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    await until(lambda: memory.held == 1001)
    client.close()
    await until(lambda: memory.held == 0)


async def test_an_answer_that_has_no_room_passes_as_it_comes(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    memory, rest = gateway.relay.context.upstreams["a"].outside.engine_memory, asyncio.Event()
    memory.most = 100
    served.plays(HEAD, chunk(b"[" + b" " * 1000), rest, chunk(b"]"), b"0\r\n\r\n")
    client = await gateway.client()
    client.send(gateway.post())
    await client.head()
    assert len(await client.chunk()) == 1001
    rest.set()
    assert (memory.held, dict(memory.dropped)) == (0, {"answer": 1})


@pytest.mark.parametrize(("most", "kept"), [(0, "first"), (10, "second")])
async def test_a_refusal_is_kept_while_another_engine_is_asked(
    house: OpenGateway, engine: StartEngine, most: int, kept: str
) -> None:
    first, second = await engine(), await engine()
    gateway = await house(first, second, routing={"strategy": "priority_only"})
    memory, answer = gateway.relay.context.engine_memory, asyncio.Event()
    memory.most = most
    for served, name in ((first, "first"), (second, "second")):
        body = b'{"error": {"message": "%s"}}' % name.encode()
        head = b"HTTP/1.1 404 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        served.plays(*(() if served is first else (answer,)), head + body)
    asking = asyncio.ensure_future(gateway.ask())
    await until(lambda: len(second.calls) == 1)
    assert memory.held == (0 if most else 31)
    answer.set()
    assert kept.encode() in (await asking).body
    await gateway.quiet()
    assert memory.held == 0


async def test_a_websocket_whose_refusal_has_no_room_is_refused(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    refusal = Response(400, "Bad", Headers({"content-length": "4000"}), b"x" * 4000)
    gateway = await house(await socket_engine(refusal=refusal))
    memory = gateway.relay.context.engine_memory
    assert (await refusal_of(gateway, dial)).status_code == 400
    memory.most = 1000
    assert code_of(await refusal_of(gateway, dial)) == "overloaded"
    await gateway.quiet()
    assert (memory.held, dict(memory.dropped)) == (0, {"answer": 1})


@pytest.mark.parametrize("flood", [event("x" * 1000), event(ids=list(range(1000, 1200)))], ids=["text", "ids"])
async def test_a_gathered_answer_without_room_is_a_bad_gateway(
    house: OpenGateway, model_engine: StartModelEngine, flood: bytes
) -> None:
    served, other = await model_engine(), await model_engine()
    gateway = await house(
        served,
        other,
        backend={"driver": "vllm"},
        routing={"gather": True, "strategy": "priority_only"},
        server={"max_engine_memory": 50_000},
    )
    memory = gateway.relay.context.engine_memory
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    served.scripts = other.scripts = [(head, *[chunk(flood)] * 300, asyncio.Event())]
    reply = await gateway.ask(gateway.post(CHAT, return_token_ids=True))
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["code"]) == (502, "upstream_error")
    assert "server.max_engine_memory" in error["message"]
    await gateway.quiet()
    assert (memory.held, memory.dropped["gathered"]) == (0, 1)


async def test_a_gathered_answer_whose_last_piece_is_too_much_has_not_been_served(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    served = await model_engine()
    gateway = await house(
        served, await model_engine(), backend={"driver": "vllm"}, server={"max_engine_memory": 50_000},
        routing={"gather": True, "strategy": "priority_only"},
    )  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    noted = NotedRecords(gateway)
    served.scripts = [(head + chunk(event("x" * 60_000) + b"data: [DONE]\n\n") + b"0\r\n\r\n",)]
    reply = await gateway.ask(gateway.post(CHAT))
    assert (reply.status, msgspec.json.decode(reply.body)["error"]["code"]) == (502, "upstream_error")
    await gateway.quiet()
    record = await noted.only()
    assert (record.status, record.outcome) == (502, "upstream_error")
    assert gateway.relay.context.engine_memory.held == 0


async def test_a_stream_goes_on_though_it_cannot_be_continued(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    served, other = await model_engine(), await model_engine()
    gateway = await house(
        served, other, backend={"driver": "vllm"}, server={"max_engine_memory": 50_000},
        routing={"strategy": "priority_only"},
    )  # fmt: skip
    memory, flood = gateway.relay.context.engine_memory, chunk(event(ids=list(range(1000, 1200))))
    gate = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    end = chunk(event("end") + b"data: [DONE]\n\n") + b"0\r\n\r\n"
    served.scripts = other.scripts = [(head, chunk(event("x")), *[flood] * 300, chunk(event("y")), gate, end)]
    client = await gateway.client()
    client.send(gateway.post(CHAT, b"x-request-id: r1", stream=True))
    await client.head()
    while b'"y"' not in await client.chunk():
        pass
    [live] = gateway.relay.live
    assert "server.max_engine_memory" in (live.why_not_movable or "")
    with pytest.raises(CannotContinue):
        await gateway.relay.move("r1", "b")
    assert (memory.held, memory.dropped["continuation"]) == (0, 1)
    gate.set()
    while b"[DONE]" not in await client.chunk():
        pass
    await gateway.quiet()


async def test_what_is_kept_of_a_stream_is_counted_until_its_end(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    served, other = await model_engine(), await model_engine()
    gateway = await house(served, other, backend={"driver": "vllm"})
    served.gate = other.gate = (5, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(CHAT, stream=True, max_tokens=40))
    await client.head()
    await client.chunk()
    [live] = gateway.relay.live
    assert live.why_not_movable is None
    assert gateway.relay.context.engine_memory.held > 0
    gate = served.gate or other.gate
    assert gate is not None
    gate[1].set()
    while b"[DONE]" not in await client.chunk():
        pass
    await gateway.quiet()
    assert gateway.relay.context.engine_memory.held == 0


async def test_a_held_answer_counts_until_it_passes(house: OpenGateway, engine: StartEngine) -> None:
    served, rest = await engine(), asyncio.Event()
    gateway = await house(served)
    memory = gateway.relay.context.upstreams["a"].outside.engine_memory
    served.plays(HEAD, chunk(b"[" + b" " * 4000), rest, chunk(b"]"), b"0\r\n\r\n")
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.until(lambda: memory.held == 4001)
    rest.set()
    assert (await client.reply()).whole
    assert memory.held == 0


async def test_a_held_answer_whose_client_leaves_is_counted_out(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    memory = gateway.relay.context.upstreams["a"].outside.engine_memory
    served.plays(HEAD, chunk(b"[" + b" " * 4000), asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.until(lambda: memory.held == 4001)
    client.close()
    await gateway.until(lambda: memory.held == 0)


async def test_without_room_an_answer_passes_as_it_comes(house: OpenGateway, engine: StartEngine) -> None:
    served, rest = await engine(), asyncio.Event()
    gateway = await house(served)
    memory = gateway.relay.context.upstreams["a"].outside.engine_memory
    memory.most = 1000
    served.plays(HEAD, chunk(b"[" + b" " * 4000), rest, chunk(b"]"), b"0\r\n\r\n")
    client = await gateway.client()
    client.send(gateway.post())
    await client.head()
    assert await client.chunk() == b"[" + b" " * 4000
    assert (memory.held, dict(memory.dropped)) == (0, {"answer": 1})
    rest.set()
    assert await client.chunk() == b"]"


@pytest.mark.parametrize(("most", "pieces", "why"), [(100_000, 1, "server.max_engine_memory"), (0, 65, "67108864")])
async def test_a_translated_answer_without_room_is_a_bad_gateway(
    house: OpenGateway, engine: StartEngine, most: int, pieces: int, why: str
) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"endpoints": []}})
    memory = gateway.relay.context.engine_memory
    memory.most = most
    served.plays(HEAD, chunk(b"{"), *[chunk(b" " * MIB)] * pieces, chunk(b"}"), b"0\r\n\r\n")
    reply = await gateway.ask(gateway.post({**CHAT, "max_tokens": 1}, path="/v1/messages"))
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["code"], error["type"]) == (502, "upstream_error", "api_error")
    assert why in error["message"]
    await gateway.quiet()
    assert (memory.held, memory.dropped["answer"]) == (0, 1)
