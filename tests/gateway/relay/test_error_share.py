"""``routing.error_share``: an engine with too many bad answers gets only probes until it recovers."""

from __future__ import annotations

import random

import msgspec

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

RULES = {"strategy": "round_robin", "error_share": 0.3}


async def test_an_engine_with_many_bad_answers_gets_only_probes_until_it_recovers(
    house: OpenGateway, engine: StartEngine
) -> None:
    flaky, sound = await engine(), await engine()
    bad, good = (flaky.answer(b"{}", 502),), (flaky.answer(),)
    flaky.otherwise(good, bad, dice=random.Random(3))
    gateway = await house(flaky, sound, routing=RULES, checks={"failures": 20})
    assert [(await gateway.ask()).status for _ in range(200)] == [200] * 200
    asked = len(flaky.calls)
    assert 10 <= asked < 50
    assert [(await gateway.ask()).status for _ in range(20)] == [200] * 20
    assert len(flaky.calls) == asked
    status = msgspec.json.decode((await gateway.ask(gateway.get("/api/status"))).body)
    assert status["backends"][0]["error_share"] > 0.3
    explained = msgspec.json.decode((await gateway.ask(gateway.post(path="/api/explain/route"))).body)
    assert [each["dropped_by"] for each in explained["candidates"]] == ["error_share", None]
    assert "of its last answers were bad" in explained["candidates"][0]["why"]
    assert b'enginehouse_backend_error_share{backend="b"} 0.0' in (await gateway.ask(gateway.get("/metrics"))).body
    gateway.fleet.drain("b")
    assert (await gateway.ask()).header("x-enginehouse-backend") == "a", "there is no other one"


async def test_without_the_key_the_share_changes_nothing(house: OpenGateway, engine: StartEngine) -> None:
    flaky, sound = await engine(), await engine()
    flaky.otherwise((flaky.answer(b"{}", 502),))
    gateway = await house(flaky, sound, routing={"strategy": "round_robin"}, checks={"failures": 1000})
    for _ in range(40):
        await gateway.ask()
    assert len(flaky.calls) == 40, "each retry goes to the other one, so it is this one's turn again"
