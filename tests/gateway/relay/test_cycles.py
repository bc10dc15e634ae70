"""Requests leave nothing to the garbage collector, which runs seldom in a gateway."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tests.support.garbage import unreachable, without_collector
from tests.support.scripted_engine import Cut, ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import DONE, event

Ask = Callable[[ServedGateway, ScriptedEngine], Awaitable[object]]


async def plain(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    assert (await gateway.ask()).status == 200


async def unknown_model(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    assert (await gateway.ask(gateway.post(model="unknown"))).status == 404


async def bad_body(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    assert (await gateway.ask(gateway.post(b"{"))).status == 400


async def streams(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    """More at once than there are connections to keep, so some are closed."""
    for _ in range(10):
        engine.streams(event(), DONE, engine.END)
    replies = await asyncio.gather(*(gateway.ask(gateway.post(stream=True)) for _ in range(10)))
    assert all(reply.whole for reply in replies)


async def broken_stream(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.streams(event(), Cut.RESET)
    assert b"event: error" in (await gateway.ask(gateway.post(stream=True))).body


async def broken_answer(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.plays(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", Cut.RESET)
    assert not (await gateway.ask()).whole


async def client_leaves(gateway: ServedGateway, engine: ScriptedEngine) -> None:
    engine.streams(event(), asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    call = engine.calls[-1]
    client.close()
    await call.closed.wait()


@pytest.mark.parametrize("ask", [plain, unknown_model, bad_body, streams, broken_stream, broken_answer, client_leaves])
async def test_a_request_leaves_no_cycle(house: OpenGateway, engine: StartEngine, ask: Ask) -> None:
    served = await engine()
    gateway = await house(served)
    await ask(gateway, served)  # what is made once
    with without_collector():
        await ask(gateway, served)
        for connection in served.connections:
            connection.transport.close()
        await gateway.until(lambda: all(connection.closed.is_set() for connection in served.connections))
        await gateway.until(lambda: not gateway.relay.live)
        left = Counter(
            type(each).__qualname__ for each in unreachable() if type(each).__module__.startswith("enginehouse")
        )
    assert not left
