"""Clients that read slowly, leave or ask for more while their stream changes engines."""

from __future__ import annotations

import asyncio

from tests.gateway.relay.continuation.test_broken_engines import CHAT, VLLM, body, unbroken
from tests.gateway.relay.continuation.test_moves import Streaming
from tests.support.model_engine import Break, ModelEngine, StartModelEngine
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import Cut
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import OpenGateway, ServedGateway


async def begin(gateway: ServedGateway, first: ModelEngine, other: ModelEngine) -> tuple[RawClient, asyncio.Event]:
    """A client whose stream broke after some events. The engine that continues it waits for the gate."""
    gate = asyncio.Event()
    first.breaks = [Break(6, Cut.RESET)]
    other.gate = (0, gate)
    client = await gateway.client()
    client.send(gateway.post(body()))
    await other.call()
    return client, gate


async def test_a_client_that_reads_slowly_gets_all_of_a_continued_stream(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    client, gate = await begin(gateway, first, other)
    [live] = gateway.relay.live
    live.pause()  # type: ignore[attr-defined]
    gate.set()
    call = await other.call()
    await gateway.until(lambda: call.sent > 200)
    assert len(gateway.relay.live) == 1
    live.resume()  # type: ignore[attr-defined]
    assert read_stream((await client.reply()).body).answer == unbroken(CHAT, body()).answer


async def test_a_client_that_leaves_ends_a_continuation(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    client, _ = await begin(gateway, first, other)
    client.close()
    await (await other.call()).closed.wait()
    await gateway.quiet()
    assert [len(engine.calls) for engine in (first, other)] == [1, 1]


async def test_the_next_request_on_the_connection_follows_a_continued_stream(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    client, gate = await begin(gateway, first, other)
    client.send(gateway.post(body(max_tokens=7)))
    gate.set()
    assert read_stream((await client.reply()).body).answer == unbroken(CHAT, body()).answer
    assert read_stream((await client.reply()).body).answer == unbroken(CHAT, body(max_tokens=7)).answer


async def test_the_next_request_on_the_connection_follows_a_moved_stream(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    streaming = await Streaming.begin(gateway, source)
    streaming.client.send(gateway.post(body(max_tokens=7)))
    await gateway.relay.move("r1", "b")
    await streaming.rest()
    assert await streaming.client.chunk() == b""
    streaming.gate.set()
    assert read_stream((await streaming.client.reply()).body).answer == unbroken(CHAT, body(max_tokens=7)).answer
