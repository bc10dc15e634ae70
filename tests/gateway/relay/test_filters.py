"""What a model's filters change on the way to its engine."""

from __future__ import annotations

import msgspec

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


async def test_an_engine_gets_filtered_bodies(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    models = {"m": {"filters": {"strip": ["temperature"], "set": {"top_k": 3}}}}
    gateway = await house(served, models=models, routing={"aliases": {"other": "m"}})
    for asked in ("m", "other"):
        assert (await gateway.ask(gateway.post(model=asked, temperature=1, seed=2))).status == 200
    bodies = [msgspec.json.decode(call.body) for call in served.calls]
    assert bodies == [{"model": "m", "seed": 2, "top_k": 3}] * 2
