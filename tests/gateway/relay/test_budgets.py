"""Limits of days, budgets, models and end users, and the headers that tell of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.fake_clock import StoppedClock
from tests.support.keys import bearer, key
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

NOON = 86400.0 * 20000 + 43200


def used(prompt: int, answer: int, cached: int = 0) -> bytes:
    details = b'"prompt_tokens_details": {"cached_tokens": %d}' % cached
    return b'{"usage": {"prompt_tokens": %d, "completion_tokens": %d, %s}}' % (prompt, answer, details)


async def test_tokens_of_a_day_are_limited_until_it_ends(house: OpenGateway, engine: StartEngine) -> None:
    clock, served = StoppedClock(NOON), await engine()
    gateway = await house(served, auth={"keys": [key("a", tokens_per_day=100)]}, clock=clock)
    served.says(used(10, 95))
    ask = gateway.post(None, bearer("a"))
    assert [(await gateway.ask(ask)).status for _ in range(2)] == [200, 429]
    reply = await gateway.ask(ask)
    assert (reply.code, "tokens_per_day" in reply.error["message"]) == ("rate_limited", True)
    assert int(reply.value("retry-after")) == 43201
    clock.now = NOON + 43200
    assert (await gateway.ask(ask)).status == 200


@pytest.mark.parametrize(("per", "again"), [("budget_per_day", 43200), ("budget_per_month", 31 * 86400)])
async def test_a_spent_budget_refuses_until_the_period_ends(
    house: OpenGateway, engine: StartEngine, per: str, again: float
) -> None:
    clock, served = StoppedClock(NOON), await engine()
    prices = {"m": {"input": 1.0, "cached": 0.1, "output": 2.0}}
    gateway = await house(served, auth={"keys": [key("a", **{per: 0.001})]}, prices=prices, clock=clock)
    served.otherwise((served.answer(used(200, 100, cached=100)),))  # 100 + 10 + 200 of a millionth each
    ask = gateway.post({"max_tokens": 1}, bearer("a"))
    statuses = [(await gateway.ask(ask)).status for _ in range(6)]
    assert statuses == [200, 200, 200, 200, 429, 429], "the fourth one begins with 0.00007 left"
    reply = await gateway.ask(ask)
    assert (reply.code, per in reply.error["message"]) == ("budget_exhausted", True)
    clock.now = NOON + again
    assert (await gateway.ask(ask)).status == 200


async def test_what_an_answer_did_not_cost_comes_back(house: OpenGateway, engine: StartEngine) -> None:
    served, auth = await engine(), {"keys": [key("a", budget_per_day=1.0)]}
    gateway = await house(served, auth=auth, prices={"*": {"output": 1.0}}, clock=StoppedClock(NOON))
    served.otherwise((served.answer(used(10, 20)),))
    ask = gateway.post({"max_tokens": 600_000}, bearer("a"))
    assert [(await gateway.ask(ask)).status for _ in range(2)] == [200, 200], "what was reserved came back"


@pytest.mark.parametrize("wanted", [600_000, 10**30])
async def test_a_request_that_its_engine_refuses_costs_nothing(
    house: OpenGateway, engine: StartEngine, wanted: int
) -> None:
    served, auth = await engine(), {"keys": [key("a", tokens_per_day=1_000_000)]}
    gateway = await house(served, auth=auth, clock=StoppedClock(NOON))
    served.otherwise((served.answer(b'{"error": {"message": "max_tokens is too large"}}', status=400),))
    ask = gateway.post({"max_tokens": wanted}, bearer("a"))
    assert [(await gateway.ask(ask)).status for _ in range(3)] == [400, 400, 400]


async def test_limits_of_models_hold_besides_the_keys_own(house: OpenGateway, engine: StartEngine) -> None:
    limits = [{"models": ["big*"], "requests_per_minute": 1}]
    gateway = await house(
        await engine(),
        auth={"keys": [key("a", limits=limits, requests_per_minute=4)]},
        backend={"models": ["m", "big-1"]},
        clock=StoppedClock(NOON),
    )

    async def status(model: str) -> int:
        return (await gateway.ask(gateway.post({"model": model}, bearer("a")))).status

    assert [await status(model) for model in ("big-1", "big-1", "m", "m", "m", "m")] == [200, 429, 200, 200, 200, 429]


async def test_each_end_user_has_limits_of_its_own(house: OpenGateway, engine: StartEngine) -> None:
    limits = [{"per": "user", "requests_per_minute": 2}]
    gateway = await house(await engine(), auth={"keys": [key("a", limits=limits)]}, clock=StoppedClock(NOON))

    async def statuses(fields: dict[str, Any]) -> list[int]:
        return [(await gateway.ask(gateway.post(fields, bearer("a")))).status for _ in range(3)]

    assert await statuses({"user": "ann"}) == [200, 200, 429]
    assert await statuses({"user": "ben"}) == [200, 200, 429]
    assert await statuses({}) == [200, 200, 429], "requests without a user share one"
    reply = await gateway.ask(gateway.post({"user": "ann"}, bearer("a")))
    assert "User 'ann' of key 'a'" in reply.error["message"]


async def test_answers_and_refusals_tell_the_limits(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    keys = [key("a", requests_per_minute=2, tokens_per_minute=1000), key("free")]
    gateway = await house(served, auth={"keys": keys}, clock=StoppedClock(NOON))
    served.otherwise((served.answer(used(10, 20)),))
    ask = gateway.post({"max_tokens": 100}, bearer("a"))
    replies = [await gateway.ask(ask) for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 429]
    assert [reply.value("x-ratelimit-limit-requests") for reply in replies] == ["2", "2", "2"]
    assert [reply.value("x-ratelimit-remaining-requests") for reply in replies] == ["1", "0", "0"]
    assert [reply.value("x-ratelimit-reset-requests") for reply in replies] == ["30.000s", "60.000s", "60.000s"]
    assert [reply.value("x-ratelimit-limit-tokens") for reply in replies] == ["1000"] * 3
    remaining = [int(reply.value("x-ratelimit-remaining-tokens")) for reply in replies]
    assert remaining[0] <= 900, "what the answer may take is reserved"
    assert remaining[2] == 1000 - 2 * 30, "what the answers took is counted"
    free = await gateway.ask(gateway.post(None, bearer("free")))
    assert not any(name.startswith(b"x-ratelimit") for name, _ in free.lines)


async def test_a_stream_that_its_client_left_costs_what_came(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, auth={"keys": [key("a", tokens_per_minute=100)]}, clock=StoppedClock(NOON))
    event = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
    served.streams(event * 5, gate)
    client = await gateway.client()
    client.send(gateway.post({"stream": True, "max_tokens": 80}, bearer("a")))
    await served.call()
    await client.head()
    await client.chunk()
    client.close()
    await gateway.quiet()
    reply = await gateway.ask(gateway.post({"max_tokens": 80}, bearer("a")))
    assert reply.status == 200, "80 were reserved, and 5 came"
