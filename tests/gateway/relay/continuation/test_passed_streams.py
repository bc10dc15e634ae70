"""Streams that another gateway continues, because it has taken over."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse import ReplicaState
from tests.gateway.relay.continuation.test_broken_engines import CHAT, body, unbroken
from tests.gateway.relay.continuation.test_moves import VLLM, WHOLE, Streaming
from tests.support.launched_engine import Launch
from tests.support.model_engine import Break, StartModelEngine
from tests.support.scripted_engine import Cut
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import OpenGateway


@pytest.mark.parametrize("query", ["", "?api-version=1"], ids=["", "query"])
@pytest.mark.parametrize("moved", [False, True], ids=["fresh", "moved before"])
async def test_the_successor_goes_on_where_the_client_is(
    house: OpenGateway, model_engine: StartModelEngine, moved: bool, query: str
) -> None:
    one, two = await model_engine(), await model_engine()
    old, new = await house(one, two, backend=VLLM), await house(one, two, backend=VLLM)
    streaming = await Streaming.begin(old, one, query=query)
    if moved:
        two.gate = (2, streaming.gate)
        await old.relay.move("r1", "b")
    old.pass_streams_to(new)
    for engine in (one, two):
        engine.gate = None
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer
    assert await streaming.client.chunk() == b""
    await old.quiet()
    await new.quiet()
    assert sum(new.relay.context.counters.continuations.values()) == 1
    assert (await streaming.client.ask(new.get("/health"))).status == 200, "the connection is the successor's"


async def test_a_successor_without_the_backend_says_so_in_the_stream(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    one, two = await model_engine(), await model_engine()
    old, new = await house(one, two, backend=VLLM), await house()
    streaming = await Streaming.begin(old, one)
    old.pass_streams_to(new)
    while b"event: error" not in streaming.wire:
        piece = await streaming.client.chunk()
        assert piece, streaming.wire
        streaming.wire += piece
    assert b"[DONE]" not in streaming.wire
    await old.quiet()


async def test_a_stream_that_cannot_be_continued_stays(house: OpenGateway, model_engine: StartModelEngine) -> None:
    one, two = await model_engine(), await model_engine()
    old, new = await house(one, two, backend=VLLM), await house(one, two, backend=VLLM)
    streaming = await Streaming.begin(old, one, n=2)
    old.pass_streams_to(new)
    assert len(old.relay.live) == 1
    streaming.gate.set()
    await streaming.rest()


async def test_a_stream_that_waits_for_its_next_engine_stays(
    house: OpenGateway, model_engine: StartModelEngine, launched: Launch
) -> None:
    """It is no request that the successor could answer from the beginning: the client has a part of the answer."""
    alone = await model_engine()
    old, new = await house(alone, backend=VLLM), await house(alone, backend=VLLM)
    managed = launched(old, "a", concurrency=4)
    managed.state = ReplicaState.READY
    exits = asyncio.Event()
    alone.breaks = [Break(4, exits, Cut.CLOSE)]
    client = await old.client()
    client.send(old.post(body()))
    await client.head()
    wire = await client.chunk()
    exits.set()
    managed.exits()
    await managed.starting()
    old.leave_to(new)
    await managed.gets_ready()
    while not wire.endswith(b"[DONE]\n\n"):
        wire += await client.chunk()
    assert read_stream(wire).answer == unbroken(CHAT, body()).answer
    assert await client.chunk() == b""
    assert (await client.ask(new.get("/health"))).status == 200, "the connection is the successor's now"
