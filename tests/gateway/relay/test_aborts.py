from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from tests.support.scripted_engine import StartEngine, chunk
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import DONE, event

LEAVE = ["close", "reset"]


@pytest.fixture(params=LEAVE)
def leave(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_leaving_before_the_answer_frees_the_engine(house: OpenGateway, engine: StartEngine, leave: str) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    call = await served.call()
    assert gateway.pending() == {"a": 1}
    getattr(client, leave)()
    await call.closed.wait()
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(499, "match"): 1}
    assert gateway.fleet.backends()[0].last_error is None


async def test_leaving_in_mid_stream_frees_the_engine(house: OpenGateway, engine: StartEngine, leave: str) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(event(), asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == event()
    getattr(client, leave)()
    await served.calls[0].closed.wait()
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(499, "match"): 1}


async def test_leaving_in_the_middle_of_an_answer_frees_the_engine(
    house: OpenGateway, engine: StartEngine, leave: str
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    await client.head()
    getattr(client, leave)()
    await served.calls[0].closed.wait()
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(499, "match"): 1}


async def test_leaving_while_the_gateway_connects_frees_the_engine(
    house: OpenGateway, engine: StartEngine, leave: str
) -> None:
    silent = await engine(scheme="https")  # takes the connection and never shakes hands
    gateway = await house(silent)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.until(lambda: silent.connections)
    assert gateway.pending() == {"a": 1}
    getattr(client, leave)()
    await silent.connections[0].closed.wait()
    await gateway.quiet()


async def test_leaving_while_the_body_is_sent_leaves_nothing(
    house: OpenGateway, engine: StartEngine, leave: str
) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    client.send(gateway.post()[:-3])
    await client.drained()
    getattr(client, leave)()
    await gateway.disconnected()
    await gateway.quiet()
    assert served.calls == []


async def test_leaving_during_a_retry_frees_the_second_engine(
    house: OpenGateway, engine: StartEngine, leave: str
) -> None:
    broken, served = await engine(), await engine()
    gateway = await house(broken, served)
    broken.says(b"{}", 503)
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    call = await served.call()
    assert gateway.pending() == {"a": 0, "b": 1}
    getattr(client, leave)()
    await call.closed.wait()
    await gateway.quiet()


@pytest.mark.parametrize("waiting", [1, 3])
async def test_leaving_while_requests_wait_in_a_pipeline_frees_the_engine(
    house: OpenGateway, engine: StartEngine, leave: str, waiting: int
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post() * (1 + waiting))
    call = await served.call()
    getattr(client, leave)()
    await call.closed.wait()
    await gateway.quiet()
    assert len(served.calls) == 1


async def test_leaving_ends_a_cold_request_before_a_waiting_one(
    house: OpenGateway, engine: StartEngine, leave: str
) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(event(), asyncio.Event())
    client = await gateway.client()
    cold = gateway.post(path="/v1/chat/completions?cold", stream=True)
    client.send(cold + gateway.post())
    await client.head()
    getattr(client, leave)()
    await served.calls[0].closed.wait()
    await gateway.quiet()
    assert len(served.calls) == 1


async def test_an_engine_that_answers_a_disconnected_client_hears_nothing_more(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    gate = asyncio.Event()
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post())
    call = await served.call()
    gate.set()
    client.close()
    await gateway.quiet()
    assert call.closed.is_set() or (await gateway.ask()).status == 200


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT, LAST = chunk(event()), chunk(DONE)


async def abort(gateway: ServedGateway, dice: random.Random, stream: bool) -> None:
    """Leave at random: before the head is sent, after it, on the first byte of an answer, in its middle."""
    client = await gateway.client()
    request = gateway.post(stream=stream) * (3 if dice.random() < 0.25 else 1)
    when = dice.randrange(4)
    client.send(request[: dice.randrange(1, len(request))] if when == 0 else request)
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        if when == 1:
            await client.drained()
        if when >= 2:
            await client.head()
        if when == 3:
            await client.some()
    getattr(client, dice.choice(LEAVE))()


@pytest.mark.parametrize("stream", [True, False])
async def test_hundreds_of_aborted_requests_leave_nothing(
    house: OpenGateway, engine: StartEngine, stream: bool
) -> None:
    dice = random.Random(20260)
    served, other = await engine(), await engine()
    gateway = await house(served, other, backend={"timeouts": {"stall": 0}})
    begun = (STREAM, EVENT) if stream else (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{",)
    for each in (served, other):
        each.otherwise((*begun, asyncio.Event()), dice=dice)
    for _ in range(8):
        await asyncio.gather(*(abort(gateway, dice, stream) for _ in range(50)))
    await gateway.disconnected()
    await gateway.quiet()
    calls = [*served.calls, *other.calls]
    assert len(calls) >= 160
    await gateway.until(lambda: all(call.closed.is_set() for call in calls))
    assert gateway.pending() == {"a": 0, "b": 0}
    assert not gateway.relay.live


@pytest.mark.long
async def test_nothing_is_left_when_engines_and_clients_break_at_random(
    house: OpenGateway, engine: StartEngine
) -> None:
    dice = random.Random(4711)
    engines = [await engine(), await engine(), await engine(there=False)]
    gateway = await house(*engines, checks={"failures": 1_000_000}, routing={"strategy": "round_robin"})
    for each in engines[:2]:
        each.otherwise(
            (each.answer(),), (each.answer(b"{}", 503),), (each.answer(b"{}", 500)[:-1], each.CLOSE), (each.RESET,),
            (STREAM, EVENT, LAST, each.END), (STREAM, EVENT, each.RESET), (STREAM, each.CLOSE),
            (b"nonsense\r\n\r\n",), (each.answer()[:-3], each.CLOSE), (each.answer(), each.CLOSE), dice=dice,
        )  # fmt: skip
    for _ in range(20):
        await asyncio.gather(*(abort(gateway, dice, dice.random() < 0.5) for _ in range(25)))
    await gateway.disconnected()
    await gateway.quiet()
    assert sum(gateway.relay.context.counters.retries.values()) > 50
    idle = [connection for each in engines for connection in each.connections if not connection.closed.is_set()]
    gateway.relay.close()
    for connection in idle:
        await connection.closed.wait()


async def test_a_server_that_waits_no_longer_leaves_nothing(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(asyncio.Event())
    sending, waiting = await gateway.client(), await gateway.client()
    waiting.send(gateway.post())
    await served.call()
    sending.send(gateway.post()[:-3])
    await sending.drained()
    assert (await gateway.ask(gateway.get("/health"))).status == 200
    gateway.cancel_tasks()
    gateway.relay.close()
    await served.calls[0].closed.wait()
    await gateway.quiet()
