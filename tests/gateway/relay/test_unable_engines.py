"""An engine that refuses what others serve is asked less, and so is one that asks to be left alone."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway

FIRST = {"strategy": "priority_only"}
"""The first engine that may serve is asked."""


async def status_of(gateway: ServedGateway) -> dict[str, list[dict[str, object]]]:
    reply = await gateway.ask(gateway.get("/api/status"))
    found: dict[str, list[dict[str, object]]] = msgspec.json.decode(reply.body)
    return found


async def suspects(gateway: ServedGateway) -> list[object]:
    return [each["replica"] for each in (await status_of(gateway))["replicas"] if each["suspect"]]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_another_engine_serves_what_one_refuses_and_is_asked_first_from_then_on(
    house: OpenGateway, engine: StartEngine, status: int
) -> None:
    unable, able = await engine(), await engine()
    unable.otherwise((unable.answer(b'{"error": "no"}', status),))
    gateway = await house(unable, able, routing=FIRST)
    assert [(await gateway.ask()).status for _ in range(30)] == [200] * 30
    assert (len(unable.calls), len(able.calls)) == (1, 30)
    assert await suspects(gateway) == ["m@a"]


async def test_if_all_refuse_the_client_gets_the_words_of_the_first_and_none_is_suspect(
    house: OpenGateway, engine: StartEngine
) -> None:
    first, second = await engine(), await engine()
    first.says(b'{"error": "not here"}', 404, b"x-theirs: 1")
    second.says(b'{"error": "nor here"}', 401)
    gateway = await house(first, second, routing=FIRST)
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.header("x-theirs")) == (404, b'{"error": "not here"}', "1")
    assert (reply.header("x-enginehouse-backend"), reply.header("x-enginehouse-reason")) == ("a", "match")
    assert (len(first.calls), len(second.calls)) == (1, 1)
    assert await suspects(gateway) == []


async def test_the_clients_own_fault_is_right_at_whichever_engine(house: OpenGateway, engine: StartEngine) -> None:
    unable, able = await engine(), await engine()
    unable.says(b"{}", 404)
    able.says(b'{"error": "bad temperature"}', 400)
    gateway = await house(unable, able, routing=FIRST)
    assert (await gateway.ask()).body == b'{"error": "bad temperature"}'
    assert await suspects(gateway) == ["m@a"], "the other engine knows the model"
    able.says(b"{}", 400)
    assert (await gateway.ask()).status == 400
    assert len(unable.calls) == 1
    assert await suspects(gateway) == ["m@a"]


async def test_the_only_engine_is_asked_although_it_is_suspect(house: OpenGateway, engine: StartEngine) -> None:
    unable, able = await engine(), await engine()
    unable.says(b"{}", 403)
    gateway = await house(unable, able, routing=FIRST)
    assert (await gateway.ask()).status == 200
    gateway.fleet.drain("b")
    reply = await gateway.ask()
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "a")
    assert await suspects(gateway) == [], "its answer ends the suspicion"


@pytest.mark.parametrize("status", [429, 503])
async def test_an_engine_that_says_retry_after_is_left_alone(
    house: OpenGateway, engine: StartEngine, status: int
) -> None:
    busy, idle = await engine(), await engine()
    busy.otherwise((busy.answer(b"{}", status, b"Retry-After: 30"),))
    gateway = await house(busy, idle, routing=FIRST)
    assert [(await gateway.ask()).status for _ in range(50)] == [200] * 50
    assert (len(busy.calls), len(idle.calls)) == (1, 50)
    left_alone, other = (await status_of(gateway))["backends"]
    assert isinstance(left_alone["leave_alone_s"], float)
    assert 0 < left_alone["leave_alone_s"] <= 30
    assert other["leave_alone_s"] is None
    explained = await gateway.ask(gateway.post(path="/api/explain/route"))
    dropped = {each["backend"]: each["dropped_by"] for each in msgspec.json.decode(explained.body)["candidates"]}
    assert dropped == {"a": "paused", "b": None}


async def test_the_only_engine_is_not_left_alone(house: OpenGateway, engine: StartEngine) -> None:
    busy = await engine()
    busy.says(b"{}", 429, b"retry-after: 30")
    gateway = await house(busy, routing=FIRST)
    assert [(await gateway.ask()).status for _ in range(2)] == [429, 200]


async def test_without_a_time_the_engine_is_asked_again(house: OpenGateway, engine: StartEngine) -> None:
    busy, idle = await engine(), await engine()
    busy.says(b"{}", 429)
    gateway = await house(busy, idle, routing=FIRST)
    assert [(await gateway.ask()).header("x-enginehouse-backend") for _ in range(2)] == ["b", "a"]
