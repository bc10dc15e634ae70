"""The memory of all request bodies: it is bounded, and given back whatever becomes of a request."""

from __future__ import annotations

import asyncio

from enginehouse.relay.relayed_request import RelayedRequest
from enginehouse_continuation.stream_history import StreamHistory
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway

LIMITS = {"max_body": 1000, "max_body_memory": 1500}
BODY = b'{"model": "m"}'.ljust(1000)
CHUNK = b"1f4\r\n" + b" " * 500 + b"\r\n"


async def half_sent(gateway: ServedGateway, size: int) -> RawClient:
    """A client whose request has arrived but for its last ``size`` bytes."""
    client, before = await gateway.client(), gateway.held
    client.send(gateway.post(BODY)[:-size])
    await gateway.until(lambda: gateway.held == before + len(BODY) - size)
    return client


async def test_a_body_for_which_there_is_no_room_is_refused_by_its_head(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, server=LIMITS)
    first = await half_sent(gateway, 100)
    reply = await gateway.ask(gateway.post(BODY).partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    assert (reply.status, reply.code, reply.header("retry-after")) == (503, "overloaded", "1")
    assert "server.max_body_memory" in reply.error["message"]
    assert gateway.relay.context.counters.refused == {("overloaded", ""): 1}
    assert served.calls == []
    assert (await gateway.ask()).status == 200, "a small one has room"
    assert (await first.ask(b" " * 100)).status == 200
    assert (await gateway.ask(gateway.post(BODY))).status == 200


async def test_a_chunked_body_is_refused_once_there_is_no_room(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, server=LIMITS)
    first = await half_sent(gateway, 100)
    head = gateway.post(b"", b"transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    reply = await gateway.ask(head + CHUNK * 2)
    assert (reply.status, reply.code) == (503, "overloaded")
    await gateway.until(lambda: gateway.held == 900)
    assert served.calls == []
    assert (await first.ask(b" " * 100)).status == 200


async def test_the_body_of_a_client_that_leaves_makes_room(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), server=LIMITS)
    first = await half_sent(gateway, 1)
    first.reset()
    await gateway.until(lambda: not gateway.held)
    assert (await gateway.ask(gateway.post(BODY))).status == 200


async def test_a_body_is_held_until_the_end_of_its_answer(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, server=LIMITS)
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post(BODY))
    await served.call()
    assert gateway.held == 1000
    assert (await gateway.ask(gateway.post(BODY))).code == "overloaded"
    gate.set()
    assert (await client.reply()).status == 200
    await gateway.until(lambda: not gateway.held)


async def test_the_bodies_of_known_heads_count(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, server=LIMITS)
    holder, refused = await gateway.client(), await gateway.client()
    for client in (holder, refused, holder, refused):
        assert (await client.ask(gateway.post(BODY))).status == 200
    served.plays(gate, served.answer())
    holder.send(gateway.post(BODY))
    await served.call(4)
    assert gateway.held == 1000
    assert (await refused.ask(gateway.post(BODY))).code == "overloaded"
    assert gateway.held == 1000
    gate.set()
    assert (await holder.reply()).status == 200
    await gateway.until(lambda: not gateway.held)


async def test_bodies_that_wait_for_their_turn_are_not_read_yet(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, server={**LIMITS, "max_body_memory": 3000})
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(BODY) * 4)
    call = await served.call()
    assert gateway.held == 1000
    client.reset()
    await call.closed.wait()
    await gateway.until(lambda: not gateway.held)
    assert len(served.calls) == 1, "bodies that waited behind the first were sent"


async def test_a_body_for_an_engine_itself_counts(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, server=LIMITS)
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post(BODY, path="/upstream/m/tokenize"))
    await served.call()
    assert gateway.held == 1000
    assert (await gateway.ask(gateway.post(BODY, path="/upstream/m/tokenize"))).code == "overloaded"
    gate.set()
    assert (await client.reply()).status == 200


async def test_without_a_limit_every_body_has_room(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), server={"max_body": 1000, "max_body_memory": 0})
    await half_sent(gateway, 1)
    assert (await gateway.ask(gateway.post(BODY))).status == 200


async def test_a_live_stream_that_others_could_continue_keeps_its_body_once(
    house: OpenGateway, engine: StartEngine
) -> None:
    served, other, rest = await engine(), await engine(), asyncio.Event()
    gateway = await house(served, other, backend={"driver": "vllm"})
    served.streams(
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', rest, b"data: [DONE]\n\n", served.END
    )
    client = await gateway.client()
    client.send(gateway.post(b'{"model": "m", "stream": true, "messages": []}'))
    await client.head()
    await client.chunk()
    [exchange] = gateway.relay.live
    assert isinstance(exchange, RelayedRequest)
    assert served.calls[0].body != exchange.job.body, "the engine gets a changed copy"
    assert exchange._dispatch.current().body == b""
    history = exchange.reply.history
    assert isinstance(history, StreamHistory)
    assert history.body is exchange.job.body
    rest.set()
    await gateway.quiet()
