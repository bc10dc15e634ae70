"""Clients that watch a gateway, and what they cost it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from enginehouse import Health
from enginehouse.routing_facts import UNKNOWN
from enginehouse.telemetry.observers import notify
from enginehouse_operations.pages import endless
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

WATCH = "/api/events"


class Watcher:
    """A client that reads the events of a gateway."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self._unread = b""

    async def event(self) -> tuple[str, Any]:
        while b"\n\n" not in self._unread:
            self._unread += await self.client.chunk()
        event, _, self._unread = self._unread.partition(b"\n\n")
        name, data = event.decode().split("\n")
        return name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))

    async def until(self, wanted: str) -> Any:
        while True:
            name, facts = await self.event()
            if name == wanted:
                return facts


async def watch(gateway: ServedGateway, *lines: bytes) -> Watcher:
    client = await gateway.client()
    client.send(gateway.get(WATCH, *lines))
    head = await client.head()
    assert (head.status, head.header("content-type")) == (200, "text/event-stream; charset=utf-8")
    return Watcher(client)


async def flood(gateway: ServedGateway) -> None:
    """Tell watchers more than fits between the gateway and a client that does not read."""
    told = gateway.gateway.observers.callbacks("backend_health")
    for _ in range(300):
        notify(told, "x" * 64_000, Health.HEALTHY)
        await asyncio.sleep(0)


def listens(gateway: ServedGateway) -> bool:
    return bool(gateway.gateway.observers.callbacks("routed"))


async def test_watchers_hear_of_a_request_from_its_route_to_its_end(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, routing={"aliases": {"gpt-4": "m"}})
    watcher = await watch(gateway)
    _, snapshot = await watcher.event()
    assert snapshot["replicas"] == [{"replica": "m@a", "model": "m", "backend": "a", "host": "local", "state": "ready"}]
    assert snapshot["backends"] == [{"backend": "a", "health": "healthy", "error": None, "draining": False}]
    assert snapshot["requests"] == []
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post({"model": "gpt-4"}, b"x-request-id: mine"))
    name, routed = await watcher.event()
    assert routed.pop("time") > 0
    assert (name, routed) == (
        "request_routed",
        {
            "id": "mine", "path": "/v1/chat/completions", "model": "gpt-4", "resolved": "m", "reason": "alias",
            "replica": "m@a",
        },
    )  # fmt: skip
    assert (await watcher.until("request_phases"))["requests"] == [{"id": "mine", "phase": "serving", "position": None}]
    gate.set()
    finished = await watcher.until("request_finished")
    assert (finished["id"], finished["replica"], finished["status"]) == ("mine", "m@a", 200)
    assert finished["duration_ms"] > 0


async def test_a_live_request_is_in_the_snapshot(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(asyncio.Event())
    (await gateway.client()).send(gateway.post(None, b"x-request-id: mine"))
    await served.call()
    _, snapshot = await (await watch(gateway)).event()
    [told] = snapshot["requests"]
    assert (told["id"], told["phase"], told["replica"]) == ("mine", "serving", "m@a")


async def test_a_request_without_a_route_has_an_end_too(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    watcher = await watch(gateway)
    await gateway.ask(gateway.post({"model": "unknown"}))
    finished = await watcher.until("request_finished")
    assert (finished["replica"], finished["status"]) == (None, 404)


async def test_a_retry_is_another_route(house: OpenGateway, engine: StartEngine) -> None:
    broken, good = await engine(), await engine()
    gateway = await house(broken, good, routing={"strategy": "priority_only"})
    watcher = await watch(gateway)
    broken.plays(broken.CLOSE)
    await gateway.ask()
    assert (await watcher.until("request_routed"))["replica"] == "m@a"
    again = await watcher.until("request_routed")
    assert (again["replica"], again["reason"]) == ("m@b", "retry")
    assert (await watcher.until("request_finished"))["replica"] == "m@b"


async def test_watchers_hear_of_a_backend_that_changes_its_health(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    watcher = await watch(gateway)
    gateway.fleet.mark_unhealthy("a", "unplugged")
    told = await watcher.until("backend_health")
    assert (told["backend"], told["health"]) == ("a", "unhealthy")


async def test_replicas_that_come_bring_a_new_snapshot(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), backend={"models": None})
    watcher = await watch(gateway)
    assert (await watcher.until("snapshot"))["replicas"] == []
    gateway.fleet.set_models("a", {"found": UNKNOWN})
    assert [each["replica"] for each in (await watcher.until("snapshot"))["replicas"]] == ["found@a"]


async def test_a_watcher_that_leaves_is_not_written_to_any_more(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    assert not listens(gateway)
    first, second = await watch(gateway), await watch(gateway)
    await first.event()
    await second.event()
    assert listens(gateway)
    first.client.close()
    second.client.reset()
    await gateway.until(lambda: not listens(gateway))


async def test_a_watcher_that_does_not_read_gets_a_new_snapshot_and_delays_no_other(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine())
    slow = await watch(gateway)
    assert (await slow.event())[1]["missed"] == 0
    await flood(gateway)
    assert (await gateway.ask()).status == 200
    while (snapshot := await slow.until("snapshot"))["why"] != "overflow":
        pass
    assert snapshot["missed"] > 0
    gateway.fleet.mark_unhealthy("a", "unplugged")
    assert (await slow.until("backend_health"))["health"] == "unhealthy"


async def test_the_end_does_not_wait_for_a_watcher_that_does_not_read(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    slow = await watch(gateway)
    await slow.event()
    await flood(gateway)
    gateway.gateway.refuse_new()
    await gateway.until(lambda: not listens(gateway))
    gateway.cancel_tasks()
    slow.client.close()
    await gateway.disconnected()
    assert not gateway.connected


async def test_a_gateway_that_stops_ends_every_stream_as_it_should_end(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    watcher, log = await watch(gateway), await gateway.client()
    await watcher.event()
    log.send(gateway.get("/logs/stream"))
    await log.head()
    gateway.gateway.refuse_new()
    assert await watcher.client.chunk() == b""
    assert await log.chunk() == b""
    assert not listens(gateway)
    late = await gateway.ask(gateway.get(WATCH))
    assert (late.status, late.code) == (503, "shutting_down")


@pytest.mark.parametrize("path", [WATCH, "/logs/stream"])
async def test_only_the_head_of_a_stream_may_be_asked_for(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    for _ in range(2):
        client.send(gateway.get(path, method="HEAD"))
        assert (await client.head()).status == 200


@pytest.mark.parametrize("path", [WATCH, "/logs", "/logs/stream", "/api/logs/a"])
async def test_only_operators_may_watch(house: OpenGateway, engine: StartEngine, path: str) -> None:
    keys = [{"name": "op", "key": "k-admin", "admin": True}, {"name": "user", "key": "k-user"}]
    gateway = await house(await engine(), auth={"keys": keys})
    assert (await gateway.ask(gateway.get(path))).code == "unauthorized"
    assert (await gateway.ask(gateway.get(path, b"x-api-key: k-user"))).code == "forbidden"


@pytest.mark.parametrize("path", [WATCH, "/logs/stream"])
async def test_the_number_of_watchers_has_a_bound(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await house(await engine())
    for _ in range(200):
        client = await gateway.client()
        client.send(gateway.get(path))
        assert (await client.head()).status == 200
    refused = await gateway.ask(gateway.get(path))
    assert (refused.status, refused.code) == (503, "overloaded")
    client.close()
    await until(lambda: sum(endless._open.values()) < 200)
    client = await gateway.client()
    client.send(gateway.get(path))
    assert (await client.head()).status == 200
