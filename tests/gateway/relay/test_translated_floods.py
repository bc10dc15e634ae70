"""Engines that answer as fast as they can, behind a translated protocol, leave the event loop to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from enginehouse_kit.protocols import ProtocolRequest
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import MODEL, OpenGateway

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"token "}}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
COUNT = 4000
ASKED: dict[str, dict[str, object]] = {
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "/v1/responses": {"input": "hi"},
    "/api/chat": {"messages": [{"role": "user", "content": "hi"}]},
}


class CountedTurns:
    """A protocol whose translated events are counted. ``most``: of one turn of the event loop."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._now = self.most = 0

    async def __aenter__(self) -> CountedTurns:
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    def translate(self, request: ProtocolRequest) -> Any:
        translation = self._protocol.translate(request)
        translation.event = partial(self._event, translation.event)
        return translation

    def _event(self, translate: Callable[[dict[str, Any]], bytes], event: dict[str, Any]) -> bytes:
        self._now += 1
        self.most = max(self.most, self._now)
        return translate(event)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._now = 0


@pytest.mark.parametrize("path", ASKED)
async def test_a_flood_is_translated_in_turns(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"endpoints": []}})
    for _ in range(3):
        served.streams(EVENT * COUNT, EVENT * 3 + LAST, served.END)
    protocols: Any = gateway.relay.context.protocols
    async with CountedTurns(protocols[path]) as turns:
        protocols[path] = turns
        asked = [gateway.ask(gateway.post({**ASKED[path], "stream": True}, path=path)) for _ in range(3)]
        replies = await asyncio.gather(*asked)
    for reply in replies:
        assert reply.body.count(b'"token ') >= COUNT + 3
    assert 0 < turns.most < COUNT // 10


@pytest.mark.parametrize("path", ASKED)
async def test_streams_that_nobody_reads_wait_and_are_whole_in_the_end(
    house: OpenGateway, engine: StartEngine, path: str
) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"endpoints": []}}, routing={"max_retries": 0})
    clients = []
    for _ in range(3):
        served.streams(EVENT * COUNT, EVENT * COUNT, EVENT * COUNT + LAST, served.END)
        clients.append(client := await gateway.client())
        client.send(gateway.post({**ASKED[path], "stream": True}, path=path))
    served_too = await engine()
    other = await house(served_too)
    for _ in range(20):
        assert (await other.ask()).status == 200
    for client in clients:
        reply = await client.reply()
        assert reply.whole
        assert reply.body.count(b'"token ') >= 3 * COUNT


async def test_a_client_that_leaves_in_the_middle_of_a_flood(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"endpoints": []}})
    served.streams(EVENT * COUNT, LAST, served.END)
    client = await gateway.client()
    client.send(gateway.post({**ASKED["/v1/messages"], "stream": True}, path="/v1/messages"))
    await client.head()
    client.reset()
    assert (await gateway.ask()).status == 200


async def test_an_event_that_cannot_be_read_in_the_middle_of_a_flood(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"endpoints": []}}, routing={"max_retries": 0})
    odd = b'data: {"choices":[{"delta":{"content":{"not":"text"}}}]}\n\n'
    served.streams(EVENT * 500 + odd + EVENT * 500 + LAST, served.END)
    reply = await gateway.ask(gateway.post({**ASKED["/v1/messages"], "stream": True}, path="/v1/messages"))
    assert reply.whole
    assert reply.body.count(b'"token ') == 500
    assert b"cannot be read" in reply.body.strip().split(b"\n")[-1]
