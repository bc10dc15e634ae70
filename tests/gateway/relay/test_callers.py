"""Who asks goes with a request: to plugins, records, decisions, operators' pages and metrics."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from enginehouse.domain.replica import Route
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.observers import Observer
from enginehouse_access_log.access_line import text_line
from tests.support.keys import bearer, key
from tests.support.request_facts import facts_of
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


class _Seen(Observer):
    def __init__(self) -> None:
        self.routes: list[Requirements] = []
        self.records: list[RequestRecord] = []

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        self.routes.append(requirements)

    def finished(self, record: RequestRecord) -> None:
        self.records.append(record)


async def test_the_caller_is_known_everywhere(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("alice"), key("boss", admin=True)]})
    seen = _Seen()
    gateway.gateway.observers.add(seen)
    assert (await gateway.ask(gateway.post({"user": "u-7"}, bearer("alice")))).status == 200
    await gateway.quiet()
    assert [(each.caller, each.user) for each in seen.routes] == [("alice", "u-7")]
    gateway.relay.requests.delivery.close()
    [record] = seen.records
    assert (record.caller, record.user) == ("alice", "u-7")
    assert " key=alice " in text_line(facts_of(record))
    page = await gateway.ask(gateway.get("/api/decisions", bearer("boss")))
    assert [each["caller"] for each in msgspec.json.decode(page.body)["decisions"]] == ["alice"]
    metrics = (await gateway.ask(gateway.get("/metrics"))).body.decode()
    labels = 'backend="a",key="{}",model="m",reason="match",status="200"'
    assert f"enginehouse_requests_total{{{labels.format('alice')}}} 1.0" in metrics
    assert f"enginehouse_requests_total{{{labels.format('boss')}}} 0.0" in metrics


async def test_a_refusal_names_the_caller_too(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("alice"), key("boss", admin=True)]})
    assert (await gateway.ask(gateway.post({"model": "none"}, bearer("alice")))).status == 404
    page = await gateway.ask(gateway.get("/api/decisions", bearer("boss")))
    assert [each["caller"] for each in msgspec.json.decode(page.body)["decisions"]] == ["alice"]


async def test_operators_see_whose_live_requests_there_are(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    served.plays(asyncio.Event())
    gateway = await house(served, auth={"keys": [key("alice"), key("boss", admin=True)]})
    client = await gateway.client()
    client.send(gateway.post({"user": "u-7"}, bearer("alice")))
    await served.call()
    page = await gateway.ask(gateway.get("/api/requests", bearer("boss")))
    [shown] = msgspec.json.decode(page.body)["requests"]
    assert (shown["caller"], shown["user"]) == ("alice", "u-7")


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({"user": "u"}, "u"),
        ({"safety_identifier": "s", "user": "u"}, "s"),
        ({"metadata": {"user_id": "a"}}, "a"),
        ({"user": ["u"]}, None),
        ({"metadata": {"other": "x"}}, None),
        ({"metadata": "x"}, None),
        ({"user": ""}, None),
    ],
)
async def test_clients_name_end_users_in_several_ways(
    house: OpenGateway, engine: StartEngine, fields: dict[str, Any], user: str | None
) -> None:
    gateway = await house(await engine())
    seen = _Seen()
    gateway.gateway.observers.add(seen)
    assert (await gateway.ask(gateway.post(fields))).status == 200
    assert [each.user for each in seen.routes] == [user]


async def test_end_users_can_be_hashed(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"hash_users": True})
    seen = _Seen()
    gateway.gateway.observers.add(seen)
    for name in ("anna@example.org", "anna@example.org", "ben@example.org"):
        assert (await gateway.ask(gateway.post({"user": name}))).status == 200
    first, again, other = [each.user for each in seen.routes]
    assert first == again != other
    assert first is not None
    assert "anna" not in first


async def test_a_long_name_is_kept_by_its_hash_everywhere(house: OpenGateway, engine: StartEngine) -> None:
    limits = [{"per": "user", "requests_per_minute": 2}]
    keys = [key("alice", limits=limits), key("boss", admin=True)]
    gateway = await house(await engine(), auth={"keys": keys}, routing={"strategy": "session"})
    seen, name, other = _Seen(), "n" * (1 << 20), "n" * ((1 << 20) + 1)
    gateway.gateway.observers.add(seen)
    asked = [gateway.post({"user": user}, bearer("alice")) for user in (name, name, name, other)]
    replies = [await gateway.ask(each) for each in asked]
    assert [reply.status for reply in replies] == [200, 200, 429, 200], "names that differ are still told apart"
    assert len(replies[2].body) < 1000
    assert all(len(each.user or "") <= 256 and len(each.session) <= 256 for each in seen.routes)
    page = await gateway.ask(gateway.get("/api/history", bearer("boss")))
    users = [each["user"] for each in msgspec.json.decode(page.body)["requests"] if each["user"]]
    assert len(users) == 4
    assert max(map(len, users)) <= 256
