"""What rescheduling knows of a live stream."""

from __future__ import annotations

import asyncio

from enginehouse.rescheduling.live_figures import PlacedRequests
from tests.support.model_engine import StartModelEngine
from tests.support.served_gateway import OpenGateway


async def test_a_stream_tells_its_tokens(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engines = [await model_engine(), await model_engine()]
    gateway = await house(*engines, backend={"driver": "vllm"})
    engines[0].gate = (6, asyncio.Event())
    live = PlacedRequests(gateway.relay)
    client = await gateway.client()
    body = {"prompt": "x" * 400, "max_tokens": 40, "stream": True}
    client.send(gateway.post(body, b"x-request-id: r1", path="/v1/completions"))
    await gateway.until(lambda: any(each.tokens().output for each in gateway.relay.live))

    [read] = live.at("a")
    assert (read.id, read.prompt_tokens, read.max_tokens, read.stays) == ("r1", 400, 40, None)
    assert 0 < read.output_tokens < 40
    assert live.at("b") == []
    [figures] = (await live.by_instance())["a"]
    assert (figures.request.prompt_tokens, figures.request.output_tokens) == (100, 0), "estimated, and not read"
    assert figures.read().max_tokens == 40
    engines[0].gate[1].set()
    await client.reply()


async def test_another_request_tells_what_it_needs(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engine = await model_engine()
    gateway = await house(engine)
    held = asyncio.Event()
    engine.scripts = [(held, engine.answer(b"{}"))]
    client = await gateway.client()
    client.send(gateway.post({"messages": [{"role": "user", "content": "x" * 400}]}))
    await gateway.until(lambda: engine.calls)

    [read] = PlacedRequests(gateway.relay).at("a")
    assert (read.prompt_tokens, read.output_tokens, read.max_tokens) == (100, 0, None)
    assert read.stays == "its answer has not begun"
    held.set()
    await client.reply()
