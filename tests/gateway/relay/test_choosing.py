"""To choose a route changes nothing: only what is carried out is a turn of a rotation."""

from __future__ import annotations

from collections import Counter

import msgspec

from enginehouse.relay.retries import AT_LEAST
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway


async def asked(gateway: ServedGateway, client: RawClient, times: int) -> Counter[str | None]:
    """The backends that answer so many requests, one after the other; ``None`` for a request that none serves."""
    replies = [await client.ask(gateway.post()) for _ in range(times)]
    return Counter(each.header("x-enginehouse-backend") if each.status == 200 else None for each in replies)


async def test_a_retry_for_which_there_is_no_budget_is_nobodys_turn(house: OpenGateway, engine: StartEngine) -> None:
    engines = [await engine() for _ in range(3)]
    gateway = await house(*engines, routing={"strategy": "round_robin", "retry_budget": 0.0})
    engines[0].otherwise((engines[0].answer(status=429),))
    client = await gateway.client()
    await asked(gateway, client, 3 * AT_LEAST)
    assert await asked(gateway, client, 30) == {None: 10, "b": 10, "c": 10}


async def test_a_question_to_explain_is_nobodys_turn(house: OpenGateway, engine: StartEngine) -> None:
    """Neither in a rotation, nor among the weighted targets of an alias; and it tells what comes next."""
    engines = [await engine() for _ in range(2)]
    routing = {"strategy": "round_robin", "aliases": {"x": [{"to": "m", "weight": 1}, {"to": "n", "weight": 1}]}}
    gateway = await house(*engines, backend={"models": ["m", "n"]}, models={"n": {}}, routing=routing)
    client = await gateway.client()
    for _ in range(6):
        told = {msgspec.json.decode((await client.ask(_explain(gateway))).body)["chosen"] for _ in range(3)}
        reply = await client.ask(gateway.post({"model": "x"}))
        served = f"{reply.header('x-enginehouse-model')}@{reply.header('x-enginehouse-backend')}"
        assert told == {served}


def _explain(gateway: ServedGateway) -> bytes:
    return gateway.post({"model": "x", "messages": []}, path="/api/explain/route")


async def test_an_explanation_knows_the_end_user(house: OpenGateway, engine: StartEngine) -> None:
    """A strategy may read it."""
    gateway = await house(await engine(), auth={"hash_users": False})
    asked = gateway.post({"messages": [], "user": "ben"}, path="/api/explain/route")
    assert msgspec.json.decode((await gateway.ask(asked)).body)["requirements"]["user"] == "ben"
