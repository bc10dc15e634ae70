from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import DONE, event, long_event

UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def error_in(body: bytes) -> Any:
    """What the error event says with which ``body`` ends."""
    _, _, last = body.rpartition(b"event: error\ndata: ")
    assert body.count(b"event: error") == 1
    assert last.endswith(b"\n\n")
    return msgspec.json.decode(last)["error"]


async def test_events_arrive_as_they_come(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    received = [asyncio.Event() for _ in range(5)]
    served.streams(*(step for n in range(5) for step in (event(n), received[n])), DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    head = await client.head()
    assert (head.status, head.header("content-type")) == (200, "text/event-stream")
    assert head.header("content-length") is None
    assert head.header("x-enginehouse-backend") == "a"
    for n in range(5):
        assert await client.chunk() == event(n)
        received[n].set()
    assert [await client.chunk(), await client.chunk()] == [DONE, b""]


async def test_what_arrives_together_leaves_together(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    rest = asyncio.Event()
    served.streams(event(0) + event(1) + event(2), rest, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == event(0) + event(1) + event(2)
    rest.set()
    assert await client.chunk() == DONE


@pytest.mark.parametrize("size", [15, 16, 1023, 1024, 1025, 70_000])
async def test_an_event_of_any_size_arrives_whole(house: OpenGateway, engine: StartEngine, size: int) -> None:
    served = await engine()
    gateway = await house(served)
    sent = b'data: {"a":0%s}\n\n' % (b" " * (size - 15))
    assert len(sent) == size
    arrived = asyncio.Event()
    served.streams(event(0), arrived, sent, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == event(0)
    arrived.set()
    rest = b""
    while piece := await client.chunk():
        rest += piece
    assert rest == sent + DONE


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_an_event_is_never_sent_in_part(house: OpenGateway, engine: StartEngine, end: bytes) -> None:
    served = await engine()
    gateway = await house(served)
    line = end[: len(end) // 2]
    events = [b'data: {"n": 1}' + end, b"event: x" + line + b'data: {"n": 2}' + end, b"data: [DONE]" + end]
    gates = [asyncio.Event() for _ in range(3)]
    whole = b"".join(events)
    steps: list[bytes | asyncio.Event] = []
    for n in range(0, len(whole), 4):
        steps.append(whole[n : n + 4])
        if n % 12 == 0 and n < 36:
            steps.append(gates[n // 12])
    served.streams(*steps, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    for gate in gates:
        gate.set()
    await client.head()
    pieces = []
    while piece := await client.chunk():
        assert piece.endswith((end, end[:-1] if b"\r\n" in end else end))
        pieces.append(piece)
    assert b"".join(pieces) == whole


async def test_an_event_split_over_segments_waits_for_its_end(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    first, second = asyncio.Event(), asyncio.Event()
    served.streams(event(0) + event(1)[:5], first, event(1)[5:-1], second, event(1)[-1:] + DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == event(0)
    first.set()
    second.set()
    assert await client.chunk() in (event(1), event(1) + DONE)


async def test_a_huge_event_is_not_held_for_ever(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    held = asyncio.Event()
    huge = long_event(2 << 20)
    served.streams(huge[:-3], held, huge[-3:] + DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    received = await client.chunk()
    assert len(received) > 1 << 20
    held.set()
    while piece := await client.chunk():
        received += piece
    assert received == huge + DONE


async def test_a_stream_of_known_length_is_relayed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    body = event(0) + DONE
    served.plays(UNTIL_CLOSE[:-2] + b"content-length: %d\r\n\r\n" % len(body), event(0), DONE)
    reply = await gateway.ask(gateway.post(stream=True))
    assert (reply.body, reply.whole) == (body, True)


async def test_what_follows_the_last_event_is_relayed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(event(0) + DONE, b": no end", served.END)
    reply = await gateway.ask(gateway.post(stream=True))
    assert (reply.body, reply.whole) == (event(0) + DONE + b": no end", True)


@pytest.mark.parametrize("how", ["CLOSE", "RESET"])
async def test_a_stream_that_breaks_ends_with_an_error_event(house: OpenGateway, engine: StartEngine, how: str) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other, routing={"broken_stream": "error"})
    read = asyncio.Event()
    served.streams(event(0), event(1)[:-1], read, getattr(served, how))
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == event(0)
    read.set()
    last = await client.chunk()
    error = error_in(last)
    assert last.startswith(b"event: error"), "half an event was sent"
    assert (error["code"], error["type"]) == ("upstream_error", "server_error")
    assert "'a'" in error["message"]
    assert await client.chunk() == b"", "the stream is not terminated"
    assert other.calls == []
    assert (await client.ask(gateway.post())).status == 200


async def test_a_stream_that_breaks_in_its_first_event_is_a_plain_error(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    read = asyncio.Event()
    served.streams(b"data: half", read, served.CLOSE)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    call = await served.call()
    read.set()
    await call.closed.wait()
    reply = await client.reply()
    assert (reply.status, reply.code) == (502, "upstream_error")


async def test_a_stream_of_known_length_that_breaks_ends_with_an_error_event(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(UNTIL_CLOSE[:-2] + b"content-length: 999\r\n\r\n" + event(0), served.CLOSE)
    reply = await gateway.ask(gateway.post(stream=True))
    assert reply.whole
    assert error_in(reply.body)["code"] == "upstream_error"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_stream_until_close_without_done_ends_with_an_error_event(
    house: OpenGateway, engine: StartEngine, path: str
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(UNTIL_CLOSE, event(0), event(1), served.CLOSE)
    reply = await gateway.ask(gateway.post(path=path, stream=True))
    assert reply.whole
    assert reply.body.startswith(event(0) + event(1))
    assert error_in(reply.body)["code"] == "upstream_error"


@pytest.mark.parametrize(
    "pieces",
    [[event(0), DONE], [event(0) + DONE], [event(0), b"data: [DO", b"NE]\n\n"], [event(0), b"data: [DONE]"]],
    ids=["alone", "together", "split", "unended"],
)
async def test_a_stream_until_close_with_done_is_whole(
    house: OpenGateway, engine: StartEngine, pieces: list[bytes]
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(UNTIL_CLOSE, *pieces, served.CLOSE)
    reply = await gateway.ask(gateway.post(stream=True))
    assert (reply.body, reply.whole) == (b"".join(pieces), True)


@pytest.mark.parametrize("how", ["CLOSE", "RESET"])
@pytest.mark.parametrize("framing", [b"content-length: 99", b"transfer-encoding: chunked"])
async def test_an_answer_that_breaks_never_looks_whole(
    house: OpenGateway, engine: StartEngine, framing: bytes, how: str
) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other)
    read = asyncio.Event()
    piece = b'c\r\n{"half": 1, \r\n' if b"chunked" in framing else b'{"half": 1, '
    served.plays(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + piece, read, getattr(served, how))
    client = await gateway.client()
    client.send(gateway.post())
    call = await served.call()
    head = await client.head()
    assert head.status == 200
    read.set()
    await call.closed.wait()
    rest = await client.rest()
    assert b"0\r\n\r\n" not in rest
    assert b"error" not in rest
    assert other.calls == []


async def test_a_broken_answer_of_unknown_length_resets_an_old_client(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    read = asyncio.Event()
    served.plays(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", read, served.CLOSE)
    client = await gateway.client()
    client.send(gateway.post().replace(b"HTTP/1.1", b"HTTP/1.0"))
    await client.head()
    read.set()
    with pytest.raises(ConnectionResetError):
        await client.everything()


async def test_an_old_client_that_sends_no_more_sees_that_its_answer_is_cut_off(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post().replace(b"HTTP/1.1", b"HTTP/1.0"))
    await client.head()
    client.send_eof()
    with pytest.raises(ConnectionResetError):
        await client.everything()


async def test_an_engines_error_status_with_a_stream_is_relayed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(
        b"HTTP/1.1 400 Bad\r\n" + UNTIL_CLOSE.partition(b"\r\n")[2][:-2] + b"content-length: 13\r\n\r\ndata: wrong\n\n"
    )
    reply = await gateway.ask(gateway.post(stream=True))
    assert (reply.status, reply.body) == (400, b"data: wrong\n\n")


async def test_an_old_client_gets_a_stream_until_close(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(event(0), DONE, served.END)
    reply = await gateway.ask(gateway.post(stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
    if reply.header("transfer-encoding") is None:  # uvicorn sends chunks even to HTTP/1.0
        assert reply.header("connection") == "close"
    assert reply.body == event(0) + DONE
