"""Pings in silent streams, so that nobody takes their connections for dead."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from enginehouse.errors import LoadFailed
from tests.support.launched_engine import Launch
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import END, Cut, ScriptedEngine, StartEngine, chunk
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import DONE, event
from tests.support.waiting import until

COMMENT = b": ping\n\n"
MESSAGES_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
FIRST = b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'
STREAMED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    chunk(event(0) + DONE),
    END,
)
LAST = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


async def asked(gateway: ServedGateway, path: str = "/v1/chat/completions", **fields: object) -> RawClient:
    client = await gateway.client()
    client.send(
        gateway.post({"messages": [{"role": "user", "content": "Hi"}]}, path=path, **{"stream": True, **fields})
    )
    return client


async def rest_of(client: RawClient) -> bytes:
    """The rest of the body."""
    pieces = b""
    while piece := await client.chunk():
        pieces += piece
    return pieces


async def test_a_stream_whose_request_waits_gets_pings_until_its_first_event(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    served = await engine()
    gateway = await house(served, models={"m": {}}, streams={"heartbeat": 15})
    managed = launched(gateway, "a")
    client = await asked(gateway)
    await managed.starting()
    gateway.pass_time(14)
    gateway.pass_time(16)
    assert (await client.head()).header("content-type") == "text/event-stream; charset=utf-8"
    gateway.pass_time(32)
    assert [await client.chunk(), await client.chunk()] == [COMMENT, COMMENT]
    served.streams(event(0), DONE, served.END)
    await managed.gets_ready()
    assert (await rest_of(client)).endswith(event(0) + DONE)


async def test_a_failure_after_a_ping_is_an_error_event(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    gateway = await house(await engine(), models={"m": {}})
    managed = launched(gateway, "a")
    client = await asked(gateway)
    await managed.starting()
    gateway.pass_time(16)
    await managed.does_not_start(LoadFailed("no memory"))
    reply = await client.reply()
    assert (reply.status, reply.whole) == (200, True)
    assert reply.body.startswith(COMMENT + b"event: error\n")


async def test_a_prompt_that_is_too_long_is_called_so_after_a_ping(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    served = await engine()
    gateway = await house(served, models={"m": {}})
    managed = launched(gateway, "a")
    client = await asked(gateway)
    await managed.starting()
    gateway.pass_time(16)
    said = "This model's maximum context length is 8 tokens. However, your prompt contains 9 tokens."
    served.says(msgspec.json.encode({"error": {"message": said, "type": "BadRequestError", "code": 400}}), 400)
    await managed.gets_ready()
    error = msgspec.json.decode((await client.reply()).body.rpartition(b"data: ")[2])["error"]
    assert error["code"] == "context_length_exceeded"


async def test_after_a_ping_the_first_refusal_is_told_with_its_own_words(
    house: OpenGateway, engine: StartEngine
) -> None:
    first, other, goes_on = await engine(), await engine(), asyncio.Event()
    gateway = await house(first, other, routing={"strategy": "priority_only"})
    first.plays(goes_on, ScriptedEngine.answer(b'{"error": {"message": "no such model", "code": "gone"}}', 404))
    other.says(b'{"error": {"message": "bad key", "code": "key"}}', 401)
    client = await asked(gateway)
    await first.call()
    gateway.pass_time(16)
    goes_on.set()
    error = msgspec.json.decode((await client.reply()).body.rpartition(b"data: ")[2])["error"]
    assert (error["message"], error["code"], error["details"]["status"]) == ("no such model", "gone", 404)


@pytest.mark.parametrize("head_first", [True, False])
async def test_a_prompt_that_takes_long_to_read_is_no_silence(
    house: OpenGateway, engine: StartEngine, head_first: bool
) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served)
    if head_first:
        served.streams(goes_on, event(0), DONE, served.END)
    else:
        served.plays(goes_on, *STREAMED)
    client = await asked(gateway)
    await served.call()
    if head_first:
        await until(lambda: gateway.attempts()[0].head is not None)
    gateway.pass_time(16)
    await client.head()
    assert await client.chunk() == COMMENT
    goes_on.set()
    assert (await rest_of(client)).endswith(event(0) + DONE)


async def test_only_silence_counts(house: OpenGateway, engine: StartEngine) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(event(0), goes_on, event(1), DONE, served.END)
    client = await asked(gateway)
    await client.head()
    assert await client.chunk() == event(0)
    gateway.pass_time(10)
    gateway.pass_time(20)
    gateway.pass_time(26)
    assert await client.chunk() == COMMENT
    goes_on.set()
    assert await rest_of(client) == event(1) + DONE


async def test_a_ping_is_never_inside_an_event(house: OpenGateway, engine: StartEngine) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(event(0), event(1)[:8], goes_on, event(1)[8:], DONE, served.END)
    client = await asked(gateway)
    await client.head()
    assert await client.chunk() == event(0)
    await until(lambda: _pieces(gateway) == 2)
    gateway.pass_time(5)
    gateway.pass_time(60)
    goes_on.set()
    rest = await rest_of(client)
    assert rest == COMMENT + event(1) + DONE


async def test_the_messages_of_an_engine_get_the_ping_of_their_protocol(
    house: OpenGateway, engine: StartEngine
) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served, backend={"driver": "llamacpp"})
    served.streams(FIRST, goes_on, LAST, served.END)
    client = await asked(gateway, "/v1/messages", max_tokens=5)
    await client.head()
    assert await client.chunk() == FIRST
    gateway.pass_time(5)
    gateway.pass_time(60)
    assert await client.chunk() == MESSAGES_PING
    goes_on.set()
    assert await client.chunk() == LAST


async def test_translated_messages_get_the_ping_of_their_protocol(house: OpenGateway, engine: StartEngine) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(goes_on, event(0), DONE, served.END)
    client = await asked(gateway, "/v1/messages", max_tokens=5)
    await served.call()
    gateway.pass_time(16)
    await client.head()
    assert await client.chunk() == MESSAGES_PING
    goes_on.set()
    await client.chunk()


async def test_a_stream_of_lines_gets_an_empty_line_of_its_own(house: OpenGateway, engine: StartEngine) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(goes_on, event(0), DONE, served.END)
    client = await asked(gateway, "/api/chat")
    await served.call()
    gateway.pass_time(16)
    assert (await client.head()).header("content-type") == "application/x-ndjson"
    line = msgspec.json.decode(await client.chunk() or b"")
    assert (line["message"], line["done"]) == ({"role": "assistant", "content": ""}, False)
    goes_on.set()
    await client.chunk()


async def test_none_for_a_client_that_reads_no_stream(house: OpenGateway, engine: StartEngine) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(goes_on, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
    client = await asked(gateway, stream=False)
    await served.call()
    gateway.pass_time(60)
    goes_on.set()
    assert (await client.reply()).body == b"{}"


async def test_none_if_they_are_off(house: OpenGateway, engine: StartEngine) -> None:
    served, goes_on = await engine(), asyncio.Event()
    gateway = await house(served, streams={"heartbeat": 0})
    served.streams(goes_on, event(0), DONE, served.END)
    client = await asked(gateway)
    await served.call()
    gateway.pass_time(60)
    goes_on.set()
    assert (await client.reply()).body == event(0) + DONE


async def test_a_stream_that_breaks_after_a_ping_goes_on_at_another_engine(
    house: OpenGateway, engine: StartEngine
) -> None:
    first, second, goes_on = await engine(), await engine(), asyncio.Event()
    gateway = await house(first, second)
    first.streams(goes_on, Cut.RESET)
    second.streams(event(0), DONE, second.END)
    client = await asked(gateway)
    await first.call()
    gateway.pass_time(16)
    await client.head()
    assert await client.chunk() == COMMENT
    goes_on.set()
    assert (await rest_of(client)).endswith(event(0) + DONE)


def _pieces(gateway: ServedGateway) -> int:
    """The chunks that have come of the answer."""
    [attempt] = gateway.attempts()
    return attempt.connection.pieces if attempt.connection is not None else 0
