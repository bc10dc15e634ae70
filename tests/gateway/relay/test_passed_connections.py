"""Connections that a gateway passes on to the one that has taken over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.launched_engine import LaunchedEngine
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import END, ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import DONE, event


@pytest.fixture
async def engines(engine: StartEngine) -> tuple[ScriptedEngine, ScriptedEngine]:
    """The engines of the gateway that leaves and of its successor."""
    return await engine(), await engine()


@pytest.fixture
async def pair(house: OpenGateway, engines: tuple[ScriptedEngine, ScriptedEngine]) -> Any:
    return await house(engines[0]), await house(engines[1])


Pair = tuple[ServedGateway, ServedGateway]
Engines = tuple[ScriptedEngine, ScriptedEngine]


async def test_idle_connections_go_at_once(pair: Pair, engines: Engines) -> None:
    old, new = pair
    fresh, used = await old.client(), await old.client()
    assert (await used.ask(old.post())).status == 200
    await old.until(lambda: len(old._connections) == 2)
    old.leave_to(new)
    await old.disconnected()
    assert (await used.ask(old.post())).status == 200
    assert (await fresh.ask(old.get("/health"))).status == 200
    assert (len(engines[0].calls), len(engines[1].calls)) == (1, 1)


async def test_a_connection_goes_after_the_answer_under_way(pair: Pair, engines: Engines) -> None:
    old, new = pair
    going_on = asyncio.Event()
    engines[0].streams(event(1), going_on, event(2) + DONE, END)
    client = await old.client()
    client.send(old.post(stream=True))
    assert (await client.head()).header("connection") is None
    await client.chunk()
    old.leave_to(new)
    going_on.set()
    assert (await _rest_of_chunks(client)).endswith(DONE)
    await old.disconnected()
    assert (await client.ask(old.post())).status == 200
    assert len(engines[1].calls) == 1


async def test_a_page_is_answered_first(pair: Pair) -> None:
    old, new = pair
    client = await old.client()
    client.send(old.get("/health"))
    await old.until(lambda: old.connected)
    old.leave_to(new)
    assert (await client.reply()).status == 200
    await old.disconnected()
    assert (await client.ask(old.get("/health"))).status == 200


async def test_a_request_that_arrives_in_pieces_goes_whole(pair: Pair, engines: Engines) -> None:
    old, new = pair
    client = await old.client()
    request = old.post({"messages": [{"role": "user", "content": "x" * 100_000}]}, b"x-mine: 1")
    client.send(request[:40])
    await old.until(lambda: old.receiving)
    old.leave_to(new)
    client.send(request[40:70_000])
    client.send(request[70_000:])
    assert (await client.reply()).status == 200
    assert not engines[0].calls
    call = await engines[1].call()
    assert call.body == request.partition(b"\r\n\r\n")[2]
    assert call.header(b"x-mine") == [b"1"]
    await old.disconnected()


async def test_a_request_that_waits_for_its_model_goes_unanswered(pair: Pair, engines: Engines) -> None:
    """It is no request of the old gateway any more: neither live nor counted."""
    old, new = pair
    launched = LaunchedEngine(old, "a")
    client = await old.client()
    client.send(old.post(prompt="p"))
    await launched.starting()
    old.leave_to(new)
    assert (await client.reply()).status == 200
    assert not engines[0].calls
    assert b'"prompt":"p"' in (await engines[1].call()).body
    await old.quiet()
    assert old.relay.context.counters.unrouted == 0
    assert list(old.relay.context.activity.newest_first()) == []
    await launched.gets_ready()


async def test_a_request_behind_an_answer_under_way_goes_then(pair: Pair, engines: Engines) -> None:
    old, new = pair
    going_on = asyncio.Event()
    engines[0].streams(event(1), going_on, event(2) + DONE, END)
    client = await old.client()
    client.send(old.post(stream=True) + old.post())
    await client.head()
    await client.chunk()
    old.leave_to(new)
    going_on.set()
    assert (await _rest_of_chunks(client)).endswith(DONE)
    assert (await client.reply()).status == 200
    assert (len(engines[0].calls), len(engines[1].calls)) == (1, 1)
    await old.disconnected()
    assert (await client.ask(old.post())).status == 200


async def test_a_refused_request_is_refused_here(pair: Pair) -> None:
    old, new = pair
    client = await old.client()
    client.send(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n")
    old.leave_to(new)
    assert (await client.reply()).status == 413


async def _rest_of_chunks(client: RawClient) -> bytes:
    pieces = []
    while piece := await client.chunk():
        pieces.append(piece)
    return b"".join(pieces)
