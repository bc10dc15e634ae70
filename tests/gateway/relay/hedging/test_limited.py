"""Hedges at backends with a limit, whose places another process may grant."""

from __future__ import annotations

import asyncio

from tests.support.model_engine import ModelEngine, StartModelEngine
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 9}


async def begin(house: OpenGateway, first: ModelEngine, second: ModelEngine) -> ServedGateway:
    backends = {"b": {"url": second.url, "models": [MODEL], "driver": "vllm", "priority": 9}}
    rules = {"hedge_after": "5ms", "strategy": "priority_only"}
    gateway = await house(first, backend={"driver": "vllm"}, backends=backends, routing=rules)
    for name in "ab":
        gateway.gateway.engines.remote.report(name, 1)
    await gateway.until(lambda: all(len(relay.context.queues) == 2 for relay in gateway.relays))
    return gateway


async def test_a_hedge_takes_a_free_place(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, second = await model_engine(), await model_engine()
    gateway = await begin(house, first, second)
    never = asyncio.Event()
    for _ in range(3):  # each place comes back
        first.gate = (0, never)
        client = await gateway.client()
        client.send(gateway.post(ASK))
        assert read_stream((await client.reply()).body).ended
        await gateway.until(lambda: not any(gateway.pending().values()))
    assert [len(engine.calls) for engine in (first, second)] == [3, 3]
