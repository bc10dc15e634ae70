"""Progress reports to the clients of waiting streams, and how these streams continue and end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from enginehouse.domain.errors import ShuttingDown
from enginehouse.errors import LoadFailed
from enginehouse.relay.relayed_request import RelayedRequest
from enginehouse.scheduling import host_queue
from tests.support.launched_engine import Launch, LaunchedEngine
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import DONE, event, long_event

EVENTS = event(0) + event(1)
ORIGIN = b": x-enginehouse-backend: a\n: x-enginehouse-model: m\n: x-enginehouse-reason: match\n\n"
REPORTED = {"progress": "comments"}


class Waited(NamedTuple):
    gateway: ServedGateway
    served: ScriptedEngine
    managed: LaunchedEngine
    client: RawClient


WaitingStream = Callable[..., Awaitable[Waited]]


def error_in(body: bytes) -> Any:
    """What the error event says with which ``body`` ends."""
    _, _, last = body.rpartition(b"event: error\ndata: ")
    assert body.count(b"event: error") == 1
    assert last.endswith(b"\n\n")
    assert b"[DONE]" not in body
    return msgspec.json.decode(last)["error"]


@pytest.fixture
def waiting(house: OpenGateway, engine: StartEngine, launched: Launch) -> WaitingStream:
    """A gateway, its engine that is not ready yet, and a client whose stream waits for it."""

    async def build(path: str = "/v1/chat/completions", stream: bool = True, **scheduling: object) -> Waited:
        served = await engine()
        gateway = await house(served, scheduling=scheduling or REPORTED, models={"m": {}})
        managed = launched(gateway, "a")
        client = await gateway.client()
        client.send(gateway.post({}, b"x-request-id: r-1", path=path, stream=stream))
        await managed.starting()
        return Waited(gateway, served, managed, client)

    return build


async def test_a_client_that_waits_long_gets_a_report_and_then_its_stream(waiting: WaitingStream) -> None:
    gateway, served, managed, client = await waiting()
    served.streams(EVENTS, DONE, served.END)
    gateway.wait_for(6)
    head = await client.head()
    assert (head.status, head.header("content-type")) == (200, "text/event-stream; charset=utf-8")
    assert (head.header("cache-control"), head.header("x-accel-buffering")) == ("no-cache", "no")
    assert head.header("x-request-id") == "r-1"
    assert head.header("content-length") is None
    assert not [name for name, _ in head.lines if name.startswith(b"x-enginehouse-")], "no engine has answered yet"
    assert await client.chunk() == b": loading, 6 s\n\n"
    await managed.gets_ready()
    rest = b""
    while piece := await client.chunk():
        rest += piece
    assert rest == ORIGIN + EVENTS + DONE
    await gateway.quiet()
    assert (await client.ask(gateway.post())).status == 200, "the connection can be used again"


async def test_before_that_nothing_is_sent_so_a_failure_keeps_its_status(waiting: WaitingStream) -> None:
    gateway, _, managed, client = await waiting()
    gateway.wait_for(4.9)
    await managed.does_not_start(LoadFailed("no memory", retry_after=7))
    reply = await client.reply()
    assert (reply.status, reply.code, reply.header("retry-after")) == (503, "load_failed", "7")
    assert reply.header("content-type") == "application/json"


async def test_before_that_nothing_is_sent_so_an_answer_keeps_its_headers(waiting: WaitingStream) -> None:
    gateway, served, managed, client = await waiting()
    served.streams(EVENTS, DONE, served.END)
    gateway.wait_for(4.9)
    await managed.gets_ready()
    reply = await client.reply()
    assert (reply.header("x-enginehouse-backend"), reply.body) == ("a", EVENTS + DONE)


async def test_a_failure_after_that_is_an_error_event(waiting: WaitingStream) -> None:
    gateway, _, managed, client = await waiting()
    gateway.wait_for(6)
    await managed.does_not_start(LoadFailed("no memory"))
    reply = await client.reply()
    assert (reply.status, reply.whole) == (200, True)
    assert reply.body.startswith(b": loading, 6 s\n\nevent: error\n")
    assert (error_in(reply.body)["code"], error_in(reply.body)["message"]) == ("load_failed", "no memory")
    assert gateway.relay.context.counters.refused == {("load_failed", "m"): 1}


@pytest.mark.parametrize("how", ["operator", "end"])
async def test_a_request_that_is_ended_after_that_ends_its_stream(waiting: WaitingStream, how: str) -> None:
    gateway, _, managed, client = await waiting(**REPORTED, cancel_loads="always")
    gateway.wait_for(6)
    if how == "operator":
        [exchange] = gateway.relay.live
        exchange.cancel()
    else:
        await managed.queue.close(ShuttingDown("bye"))
    error = error_in((await client.reply()).body)
    assert error["code"] == ("cancelled" if how == "operator" else "shutting_down")
    await managed.stopped()


async def test_reports_are_sent_when_something_changed_and_every_few_seconds(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    served = await engine()
    gateway = await house(served, scheduling=REPORTED, models={"m": {}})
    managed = launched(gateway, "a", concurrency=1)
    gate = asyncio.Event()
    served.plays(gate, served.answer())
    served.plays(gate, served.answer())
    first, second, client = [await gateway.client() for _ in range(3)]
    first.send(gateway.post())
    await managed.gets_ready()
    await served.call()
    second.send(gateway.post())
    await gateway.until(lambda: len(managed.queue.waiting()) == 1)
    client.send(gateway.post(stream=True))
    await gateway.until(lambda: len(managed.queue.waiting()) == 2)
    for seconds in (6, 6.2, 8, 10, 11.1, 12):
        gateway.wait_for(seconds)
    [_, behind] = managed.queue.waiting()
    second.close()
    await gateway.until(lambda: len(managed.queue.waiting()) == 1)
    gateway.wait_for(13)
    managed.queue.cancel(behind.ticket)
    for seconds in (14, 18.1):
        gateway.wait_for(seconds)
    await client.head()
    told = b"".join([await client.chunk() for _ in range(4)])
    assert told == (
        b": queued, position 1, 6 s\n\n: queued, position 1, 11 s\n\n: queued, position 0, 13 s\n\n: serving, 18 s\n\n"
    )
    gate.set()


async def test_reports_in_the_reasoning_of_a_chat_are_chunks(waiting: WaitingStream) -> None:
    gateway, served, managed, client = await waiting(progress="reasoning")
    served.streams(EVENTS, DONE, served.END)
    gateway.wait_for(6)
    await client.head()
    piece = await client.chunk()
    assert piece.startswith(b"data: ")
    assert piece.endswith(b"\n\n")
    chunk = msgspec.json.decode(piece[6:])
    assert isinstance(chunk.pop("created"), int)
    assert chunk == {
        "id": "chatcmpl-r-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": {"reasoning_content": "m: loading, 6 s\n"}, "finish_reason": None}],
    }
    await managed.gets_ready()
    assert await client.chunk() == ORIGIN
    assert await client.chunk() == EVENTS


async def test_where_there_is_no_reasoning_reports_are_comments(waiting: WaitingStream) -> None:
    gateway, _, _, client = await waiting(path="/v1/completions", progress="reasoning")
    gateway.wait_for(6)
    await client.head()
    assert await client.chunk() == b": loading, 6 s\n\n"


@pytest.mark.parametrize(
    "request_",
    [
        {"stream": False},
        {"path": "/v1/embeddings"},
        {"path": "/v1/responses"},
        {"progress": "off"},
        {"progress_patience": 60.0},
    ],
)
async def test_a_client_that_does_not_want_reports_gets_none(
    waiting: WaitingStream, request_: dict[str, object]
) -> None:
    gateway, _, managed, client = await waiting(**{**({} if "progress" in request_ else REPORTED), **request_})
    gateway.wait_for(30)
    await managed.does_not_start(LoadFailed("no memory"))
    assert (await client.reply()).status == 503


async def test_a_model_may_differ_from_the_others(house: OpenGateway, engine: StartEngine, launched: Launch) -> None:
    for own, reported in (("off", False), ("comments", True)):
        gateway = await house(
            await engine(),
            scheduling={"progress": "comments" if own == "off" else "off", "progress_patience": 0.0},
            models={"m": {"progress": own}},
        )
        managed = launched(gateway, "a")
        client = await gateway.client()
        client.send(gateway.post(stream=True))
        await managed.starting()
        gateway.wait_for(1)
        await managed.does_not_start(LoadFailed("no memory"))
        assert (await client.reply()).status == (200 if reported else 503)


async def test_a_request_at_its_engine_gets_no_first_report_so_the_engine_decides_the_status(
    waiting: WaitingStream,
) -> None:
    gateway, served, managed, client = await waiting()
    gate = asyncio.Event()
    served.plays(gate, served.answer(b"{}", 422))
    await managed.gets_ready()
    await served.call()
    gateway.wait_for(60)
    gate.set()
    assert (await client.reply()).status == 422


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            (400, b'{"error": {"message": "too long", "type": "t", "code": "context_length_exceeded"}}'),
            {"message": "too long", "type": "t", "param": None, "code": "context_length_exceeded"},
        ),
        ((503, b"busy"), {"message": "Backend 'a' answered 503", "code": "upstream_error"}),
        ((200, b'{"n": 1}'), {"message": "Backend 'a' did not stream but answered 200", "code": "upstream_error"}),
        ((422, b'["odd"]'), {"message": "Backend 'a' answered 422", "code": "upstream_error"}),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
async def test_an_answer_that_is_no_stream_becomes_an_error_event(
    waiting: WaitingStream, answer: tuple[int, bytes], expected: dict[str, object], whole: bool
) -> None:
    gateway, served, managed, client = await waiting()
    status, body = answer
    said = served.answer(body, status)
    served.plays(*([said] if whole else [said[:-3], asyncio.Event()]))
    gateway.wait_for(6)
    await managed.gets_ready()
    if not whole:
        call = await served.call()
        await gateway.until(lambda: call.sent)
        call.connection.transport.write(said[-3:])
    reply = await client.reply()
    error = error_in(reply.body)
    assert expected.items() <= error.items()
    try:
        told = msgspec.json.decode(body)
    except ValueError:
        told = body.decode()
    assert error["details"] == {"status": status, "body": told}
    assert reply.body.startswith(b": loading, 6 s\n\nevent: error\n")
    [(_, _, series)] = list(gateway.relay.context.counters)
    assert dict(series.keys[""].requests) == {(status if status >= 400 else 502, "match"): 1}


async def test_an_answer_that_is_no_stream_becomes_an_error_event_under_an_alias_too(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    served = await engine()
    gateway = await house(served, scheduling=REPORTED, models={"m": {}}, routing={"aliases": {"other": "m"}})
    managed = launched(gateway, "a")
    client = await gateway.client()
    client.send(gateway.post({"model": "other"}, stream=True))
    await managed.starting()
    served.says(b'{"choices": [], "model": "m"}')
    gateway.wait_for(6)
    await managed.gets_ready()
    assert error_in((await client.reply()).body)["details"]["status"] == 200


async def test_an_answer_that_is_no_stream_is_passed_on_up_to_a_limit(waiting: WaitingStream) -> None:
    gateway, served, managed, client = await waiting()
    served.says(b"x" * (1 << 20), 400)
    gateway.wait_for(6)
    await managed.gets_ready()
    assert len(error_in((await client.reply()).body)["details"]["body"]) == 64 * 1024


async def test_a_refusing_engine_is_still_replaced_by_another(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    refusing, served = await engine(), await engine()
    gateway = await house(refusing, served, scheduling=REPORTED, models={"m": {}})
    managed = launched(gateway, "a")
    refusing.says(b"{}", 503)
    gate = asyncio.Event()
    served.streams(gate, EVENTS, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await managed.starting()
    gateway.wait_for(6)
    await managed.gets_ready()
    await served.call()
    gateway.wait_for(12)
    gate.set()
    told = (await client.reply()).body
    assert told.startswith(b": loading, 6 s\n\n: serving, 12 s\n\n: x-enginehouse-backend: b\n")
    assert b": x-enginehouse-reason: retry\n\n" in told
    assert told.endswith(EVENTS + DONE)


async def test_a_spliced_stream_that_breaks_ends_with_an_error_event(
    waiting: WaitingStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_queue, "_NOTICE_S", 0.05)
    gateway, served, managed, client = await waiting()
    served.streams(EVENTS, b"data: half", served.CLOSE)
    gateway.wait_for(6)
    await managed.gets_ready()
    reply = await client.reply()
    assert reply.body.startswith(b": loading, 6 s\n\n" + ORIGIN + EVENTS + b"event: error\n")
    assert error_in(reply.body)["code"] == "upstream_error"


@pytest.mark.parametrize("reported", [True, False])
async def test_a_client_that_leaves_takes_its_ticket_along_and_the_load_for_it_alone(
    waiting: WaitingStream, reported: bool
) -> None:
    gateway, served, managed, client = await waiting(**REPORTED, cancel_loads="always")
    if reported:
        gateway.wait_for(6)
        await client.head()
    client.reset()
    await gateway.quiet()
    await managed.stopped()
    assert not managed.queue.waiting()
    gateway.wait_for(60)
    assert served.calls == []


async def test_a_client_that_reads_nothing_gets_no_reports_and_slows_its_engine(waiting: WaitingStream) -> None:
    gateway, served, managed, client = await waiting()
    piece = long_event(1 << 18)
    served.streams(*[piece] * 128, DONE, served.END)
    gateway.wait_for(6)
    [exchange] = gateway.relay.live
    assert isinstance(exchange, RelayedRequest)
    exchange.pause()
    gateway.wait_for(60)
    await managed.gets_ready()
    call = await served.call()
    await gateway.until(lambda: not call.connection.writable.is_set())
    assert call.sent < 24 << 20
    exchange.resume()
    reply = await client.reply()
    assert reply.body == b": loading, 6 s\n\n" + ORIGIN + piece * 128 + DONE


async def test_an_old_client_gets_reports_as_well(house: OpenGateway, engine: StartEngine, launched: Launch) -> None:
    served = await engine()
    gateway = await house(served, scheduling=REPORTED, models={"m": {}})
    managed = launched(gateway, "a")
    served.streams(EVENTS, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
    await managed.starting()
    gateway.wait_for(6)
    await managed.gets_ready()
    body = (await client.reply()).body
    assert re.fullmatch(rb": loading, 6 s\n\n(: .*\n){3}\n" + re.escape(EVENTS + DONE), body)


async def test_the_watchdog_has_reports_sent(waiting: WaitingStream) -> None:
    _, _, managed, client = await waiting(progress="comments", progress_patience=0.0)
    assert (await client.head()).status == 200
    assert await client.chunk() == b": loading, 0 s\n\n"
    await managed.does_not_start(LoadFailed("no memory"))
    assert (await client.chunk()).startswith(b"event: error")
