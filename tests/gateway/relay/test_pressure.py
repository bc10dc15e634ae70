"""Clients that read late and bodies that are too large: what the gateway holds stays bounded."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse.relay.relayed_request import RelayedRequest
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import DONE, long_event

PIECE = b"x" * (1 << 18)
PIECES = 128  # 32 MiB
BOUND = 24 << 20
"""What may be on its way while a client reads nothing: mostly what the kernel holds for four ends of sockets."""


@pytest.mark.parametrize("stream", [False, True])
async def test_a_slow_client_slows_its_engine(house: OpenGateway, engine: StartEngine, stream: bool) -> None:
    served = await engine()
    gateway = await house(served)
    if stream:
        piece = long_event(1 << 18)
        served.streams(*[piece] * PIECES, DONE, served.END)
    else:
        piece = PIECE
        served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * PIECES), *[piece] * PIECES)
    client = await gateway.client()
    client.send(gateway.post(stream=stream))
    call = await served.call()
    await gateway.congested(served)
    await gateway.until(lambda: not call.connection.writable.is_set())
    assert call.sent < BOUND
    reply = await client.reply()
    assert reply.whole
    assert reply.body == piece * PIECES + (DONE if stream else b"")


async def test_a_slow_client_that_leaves_frees_its_engine(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(PIECE) * PIECES), *[PIECE] * PIECES)
    client = await gateway.client()
    client.send(gateway.post())
    call = await served.call()
    await gateway.congested(served)
    client.reset()
    await call.closed.wait()
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(499, "match"): 1}


async def test_a_slow_client_gets_the_error_event_of_a_broken_stream(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(*[long_event(1 << 18)] * PIECES)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await gateway.congested(served)
    gateway.relay.close()
    reply = await client.reply()
    assert reply.whole
    assert b"\n\nevent: error\ndata: " in reply.body[-1000:]


async def test_the_next_request_of_a_slow_client_waits(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    body = b'"%s"' % (b"x" * 60_000)
    served.otherwise((served.answer(body),))
    client = await gateway.client()
    client.send(gateway.post() * 600)
    await gateway.congested(served)
    assert len(served.calls) < BOUND // len(body), "answers pile up for a client that reads none"
    for _ in range(600):
        assert (await client.reply()).body == body
    assert len(served.calls) == 600


async def test_a_large_body_waits_for_its_turn_outside(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(gate, served.answer(b'"first"'))
    body = b'{"model": "m", "x": "' + b"y" * (24 << 20) + b'"}'
    client = await gateway.client()
    client.send(gateway.post() + gateway.post(body))
    await served.call()
    for _ in range(200):
        await asyncio.sleep(0)
    assert client.unsent() > 8 << 20
    gate.set()
    assert (await client.reply()).body == b'"first"'
    assert (await client.reply()).status == 200
    assert served.calls[1].body == body


@pytest.mark.parametrize("begun", [b"", b"x" * 500])
async def test_a_body_that_says_it_is_too_large_is_not_read(
    house: OpenGateway, engine: StartEngine, begun: bytes
) -> None:
    served = await engine()
    gateway = await house(served, server={"max_body": 1000})
    client = await gateway.client()
    head = gateway.post(b"").replace(b"content-length: 0", b"content-length: 1001")
    client.send(head + begun)
    reply = await client.reply()
    assert (reply.status, reply.code) == (413, "invalid_request")
    assert "1000 bytes" in reply.error["message"]
    assert reply.header("x-request-id")
    assert served.calls == []


async def test_a_chunked_body_that_grows_too_large_is_not_read_on(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, server={"max_body": 1000})
    client = await gateway.client()
    head = gateway.post(b"", b"transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    client.send(head + (b"1f4\r\n" + b"x" * 500 + b"\r\n") * 3)
    reply = await client.reply()
    assert (reply.status, reply.code) == (413, "invalid_request")
    assert served.calls == []


async def test_a_body_of_just_the_largest_size_is_taken(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), server={"max_body": 1000})
    body = b'{"model": "m"}'.ljust(1000)
    assert (await gateway.ask(gateway.post(body))).status == 200
    chunked = gateway.post(b"", b"transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    assert (await gateway.ask(chunked + b"3e8\r\n" + body + b"\r\n0\r\n\r\n")).status == 200


@pytest.mark.parametrize("refusal", ["too large", "no key"])
async def test_a_client_that_sends_on_still_gets_its_refusal(
    house: OpenGateway, engine: StartEngine, refusal: str
) -> None:
    served = await engine()
    keys = [{"name": "k", "key": "k"}] if refusal == "no key" else []
    gateway = await house(served, server={"max_body": 1000 if refusal == "too large" else 1 << 30}, auth={"keys": keys})
    client = await gateway.client()
    reply = await client.ask(gateway.post(b" " * (16 << 20)))
    assert reply.status == (413 if refusal == "too large" else 401)
    assert served.calls == []


async def test_a_large_body_reaches_the_engine(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    body = b'{"model": "m", "x": "' + b"y" * (8 << 20) + b'"}'
    assert (await gateway.ask(gateway.post(body))).status == 200
    assert served.calls[0].body == body


async def test_an_engine_that_answers_before_it_has_read_everything_is_not_used_again(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    served.answers_early(served.answer(b"{}", 413))
    reply = await gateway.ask(gateway.post(b'{"model": "m", "x": "' + b"y" * (16 << 20) + b'"}'))
    assert reply.status == 413
    assert (await gateway.ask()).status == 200
    assert len(served.connections) == 2


async def test_a_client_that_never_reads_frees_its_engine(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts={"client": 60})
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(PIECE) * PIECES), *[PIECE] * PIECES)
    client = await gateway.client()
    client.send(gateway.post())
    call = await served.call()
    await gateway.congested(served)
    gateway.pass_time(59)
    assert gateway.relay.live
    gateway.pass_time(61)
    await call.closed.wait()
    await gateway.quiet()
    series = gateway.relay.context.counters.series("a", "m")
    assert series.keys[""].requests == {(499, "match"): 1}
    assert not (await client.reply()).whole


async def test_a_client_that_reads_slowly_keeps_its_answer(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts={"client": 60})
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(PIECE) * PIECES), *[PIECE] * PIECES)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.congested(served)
    [exchange] = gateway.relay.live
    assert isinstance(exchange, RelayedRequest)
    exchange._unread += 1  # the client has taken a byte since then
    gateway.pass_time(61)
    assert (await client.reply()).body == PIECE * PIECES


async def test_a_client_without_a_limit_may_wait(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts={"client": 0})
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(PIECE) * PIECES), *[PIECE] * PIECES)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.congested(served)
    gateway.pass_time(10_000)
    assert (await client.reply()).whole


async def test_an_answer_that_the_client_never_takes_is_not_kept(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, timeouts={"client": 60})
    served.otherwise((served.answer(PIECE * 8),))
    client = await gateway.client()
    client.send(gateway.post() * 16)
    await gateway.congested(served)
    gateway.seconds_later(0, 50)
    assert gateway.connected
    gateway.seconds_later(111)
    await gateway.disconnected()


async def test_an_answer_without_a_length_that_is_never_taken_does_not_look_whole(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, timeouts={"client": 60})
    pieces = [b"%x\r\n%s\r\n" % (len(PIECE), PIECE)] * PIECES
    served.plays(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n")
    client = await gateway.client()
    client.send(gateway.post().replace(b"HTTP/1.1", b"HTTP/1.0"))
    await gateway.congested(served)
    gateway.seconds_later(0, 111)
    with pytest.raises(ConnectionError):
        await client.everything()


async def test_a_stopping_server_leaves_a_client_that_does_not_read(
    house: OpenGateway, engine: StartEngine, caplog: pytest.LogCaptureFixture
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(PIECE) * PIECES), *[PIECE] * PIECES)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.congested(served)
    gateway.relay.close()
    gateway.shut_down()
    gateway.cancel_tasks()
    assert not (await client.reply()).whole
    await gateway.quiet()
    assert "Traceback" not in caplog.text


async def test_a_request_behind_an_answer_that_is_not_read_is_forgotten_with_its_client(
    house: OpenGateway, engine: StartEngine
) -> None:
    """The fixture finds what is held of its body."""
    served = await engine()
    gateway = await house(served, server={"hold_answers": 32 << 20})
    text = b'"%s"' % (b"x" * (24 << 20))
    served.plays(served.answer(text))
    client = await gateway.client()
    client.send(gateway.post() * 3)
    await gateway.congested(served)
    client.send_eof()
    assert (await client.reply()).body == text
    assert await client.rest() == b""
    assert len(served.calls) == 1
