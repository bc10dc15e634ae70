"""Time limits. The limits are the default ones; tests tell the exchanges that time has passed."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.relayed_request import RelayedRequest
from enginehouse.relay.upstream.connection import Connection
from tests.support.at_once import AT_ONCE
from tests.support.fake_transport import FakeTransport
from tests.support.fake_upstream import KeptAnswer
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import ScriptedEngine, StartEngine, chunk
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.stream_events import DONE, event

LIMITS = {"connect": 5, "first_byte": 600, "stall": 120, "total": 3600}
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def sent(gateway: ServedGateway, served: ScriptedEngine, *, stream: bool = False) -> RawClient:
    """A client whose request has reached the engine."""
    client = await gateway.client()
    before = len(served.calls)
    client.send(gateway.post(stream=stream))
    await served.call(before)
    return client


async def test_an_engine_that_does_not_begin_to_answer_is_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts=LIMITS)
    served.plays(asyncio.Event())
    client = await sent(gateway, served)
    gateway.pass_time(599)
    assert gateway.relay.live
    gateway.pass_time(601)
    reply = await client.reply()
    assert (reply.status, reply.code) == (504, "upstream_timeout")
    assert reply.error["message"] == "Backend 'a' did not begin to answer within 600 s"
    await served.calls[0].closed.wait()


async def test_a_model_has_time_limits_of_its_own(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts=LIMITS, models={"m": {"timeouts": {"first_byte": 3, "stall": 2}}})
    served.plays(asyncio.Event())
    client = await sent(gateway, served)
    gateway.pass_time(4)
    reply = await client.reply()
    assert reply.error["message"] == "Backend 'a' did not begin to answer within 3 s"
    served.streams(event(), asyncio.Event())
    client = await sent(gateway, served, stream=True)
    await client.head()
    await client.chunk()
    gateway.pass_time(3)
    assert b"did not continue its answer within 2 s" in await client.chunk()


async def test_the_time_limits_of_a_backend_win_over_those_of_a_model(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    limits = {"m": {"timeouts": {"first_byte": 3}}}
    gateway = await house(served, backend={"timeouts": LIMITS}, models=limits)
    served.plays(asyncio.Event())
    client = await sent(gateway, served)
    gateway.pass_time(599)
    assert gateway.relay.live
    gateway.pass_time(601)
    assert (await client.reply()).code == "upstream_timeout"


async def test_a_head_is_not_yet_an_answer(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts=LIMITS)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", asyncio.Event())
    client = await sent(gateway, served)
    await gateway.until(lambda: any(attempt.head for attempt in gateway.attempts()))
    gateway.pass_time(599)
    assert gateway.relay.live
    gateway.pass_time(601)
    reply = await client.reply()
    assert reply.error["message"] == "Backend 'a' did not begin to answer within 600 s"


async def test_an_engine_that_does_not_begin_to_answer_is_replaced(house: OpenGateway, engine: StartEngine) -> None:
    silent, served = await engine(), await engine()
    gateway = await house(silent, served, timeouts=LIMITS)
    silent.plays(asyncio.Event())
    client = await sent(gateway, silent)
    gateway.pass_time(601)
    reply = await client.reply()
    assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "retry")


async def test_an_engine_that_cannot_be_reached_in_time_is_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    silent = await engine(scheme="https")  # takes the connection and never shakes hands
    gateway = await house(silent, timeouts=LIMITS)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.until(lambda: silent.connections)
    gateway.pass_time(4)
    assert gateway.relay.live
    gateway.pass_time(6)
    reply = await client.reply()
    assert (reply.status, reply.code) == (504, "upstream_timeout")
    assert reply.error["message"] == "Backend 'a' could not be reached within 5 s"
    await silent.connections[0].closed.wait()


async def test_a_stream_that_stalls_ends_with_an_error_event(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts=LIMITS)
    served.streams(event(), asyncio.Event())
    client = await sent(gateway, served, stream=True)
    await client.head()
    assert await client.chunk() == event()
    gateway.pass_time(119)
    assert gateway.relay.live
    gateway.pass_time(121)
    last = await client.chunk()
    assert last.startswith(b"event: error\ndata: ")
    assert b"upstream_timeout" in last
    assert await client.chunk() == b""
    await served.calls[0].closed.wait()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_stream_ends_soon_after_its_last_event_although_its_engine_does_not_end_it(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("enginehouse.relay.attempts.attempt._ENDS_WITHIN_S", 50.0)
    served = await engine()
    gateway = await house(served, timeouts=LIMITS, models={MODEL: {"endpoints": ["/v1/chat/completions"]}})
    said = b'data: {"choices": [{"index": 0, "delta": {"content": "hello"}}]}\n\n'
    served.plays(SSE + chunk(said), chunk(DONE), asyncio.Event())
    client = await gateway.client()
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    client.send(gateway.post(body, path=path, stream=True))
    await gateway.until(lambda: any(cast("RelayedRequest", each).reply.is_over for each in gateway.relay.live))
    gateway.pass_time(0)
    assert gateway.relay.live, "the engine may end it yet"
    gateway.pass_time(51)
    reply = await client.reply()
    assert (reply.status, reply.whole) == (200, True)
    assert reply.body == said + DONE if path == "/v1/chat/completions" else b"message_stop" in reply.body
    await served.calls[0].closed.wait()
    assert not gateway.relay.live
    assert gateway.fleet.backends()[0].last_error is None
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(200, "match"): 1}


async def test_an_answer_that_stalls_never_looks_whole(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts=LIMITS)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", asyncio.Event())
    client = await sent(gateway, served)
    await client.head()
    gateway.pass_time(121)
    assert await client.rest() in (b"", b"{"), "eight of nine bytes never come"
    await served.calls[0].closed.wait()


async def test_every_piece_gives_a_stream_new_time(house: OpenGateway, engine: StartEngine) -> None:
    served, more = await engine(), asyncio.Event()
    gateway = await house(served, timeouts=LIMITS)
    served.streams(event(), more, event(2), asyncio.Event())
    client = await sent(gateway, served, stream=True)
    await client.head()
    await client.chunk()
    gateway.pass_time(0)
    [attempt] = gateway.attempts()
    before = attempt.deadline
    gateway.pass_time(0)
    assert attempt.deadline == before, "nothing has come"
    more.set()
    assert await client.chunk() == event(2)
    gateway.pass_time(0)
    assert attempt.deadline > before


async def test_the_answer_before_does_not_limit_an_attempt_that_is_sent_again(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, timeouts=LIMITS)
    served.streams(event(), asyncio.Event())
    client = await sent(gateway, served, stream=True)
    await client.head()
    [attempt] = gateway.attempts()
    pool = attempt.upstream.pool
    kept = Connection(pool.keep, pool._remove, AT_ONCE, SYSTEM_CLOCK.now)
    kept.connection_made(FakeTransport())
    pool.keep(kept)
    attempt.cancel()
    attempt.send(KeptAnswer(), b"request", reuse=True)
    gateway.pass_time(0)
    gateway.pass_time(599)
    assert gateway.relay.live, "it has 600 s for the first byte"
    kept.pieces = 1
    attempt.work(never, lambda error: None)
    gateway.pass_time(0)
    gateway.pass_time(3000)
    assert gateway.relay.live, "a preparation has no limit of its own"
    attempt.cancel()


async def never(attempt: Attempt) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("stream", [True, False])
async def test_the_whole_answer_has_a_limit_too(house: OpenGateway, engine: StartEngine, stream: bool) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other, timeouts={**LIMITS, "stall": 0, "first_byte": 0})
    if stream:
        served.streams(event(), asyncio.Event())
    else:
        served.plays(asyncio.Event())
    client = await sent(gateway, served, stream=stream)
    if stream:
        await client.head()
        await client.chunk()
    gateway.pass_time(3599)
    assert gateway.relay.live
    gateway.pass_time(3601)
    text = await client.chunk() if stream else (await client.reply()).body
    assert b"upstream_timeout" in text
    assert b"did not finish within 3600 s" in text
    assert other.calls == []


async def test_without_limits_an_engine_may_take_for_ever(house: OpenGateway, engine: StartEngine) -> None:
    served, answer = await engine(), asyncio.Event()
    gateway = await house(served, timeouts=dict.fromkeys(LIMITS, 0))
    served.plays(answer, served.answer())
    client = await sent(gateway, served)
    gateway.pass_time(1e9)
    answer.set()
    assert (await client.reply()).status == 200


async def test_a_backends_own_limits_win(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, backend={"timeouts": {"first_byte": 3}}, timeouts=LIMITS)
    served.plays(asyncio.Event())
    client = await sent(gateway, served)
    gateway.pass_time(4)
    assert "within 3 s" in (await client.reply()).error["message"]


async def test_a_slow_client_is_not_the_engines_fault(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts={**LIMITS, "client": 0})
    piece = b"x" * (1 << 18)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * 128), *[piece] * 128)
    client = await sent(gateway, served)
    await gateway.congested(served)
    gateway.pass_time(1000)
    assert gateway.relay.live, "the engine was given up because its client is slow"
    reply = await client.reply()
    assert (reply.whole, len(reply.body)) == (True, len(piece) * 128)
    assert gateway.fleet.backends()[0].last_error is None


async def test_every_live_request_has_its_time_limit_checked(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts={"first_byte": 0.001})
    clients = []
    for _ in range(2):
        served.plays(asyncio.Event())
        clients.append(await sent(gateway, served))
    replies = [await client.reply() for client in clients]
    assert [(reply.status, reply.code) for reply in replies] == [(504, "upstream_timeout")] * 2
