"""Requests wait for a model that several engines serve, not for one of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from enginehouse.config.schema import HostSettings
from tests.support.changed_config import reconfigure
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until


class TwoEngines:
    """A gateway in front of two engines, each of which serves one request at once. ``gates`` let them answer."""

    def __init__(self, gateway: ServedGateway, *engines: ScriptedEngine) -> None:
        self.gateway = gateway
        self.engines = engines
        self.gates = [asyncio.Event() for _ in engines]
        for name in ("a", "b"):
            gateway.gateway.engines.remote.report(name, 1)

    async def fill(self) -> list[RawClient]:
        """Two requests that occupy the engines."""
        for engine, gate in zip(self.engines, self.gates, strict=True):
            engine.plays(gate, engine.answer())
        clients = [await self.send() for _ in self.engines]
        await until(lambda: all(engine.calls for engine in self.engines))
        return clients

    async def send(self) -> RawClient:
        client = await self.gateway.client()
        before = len(self.gateway.relay.live)
        client.send(self.gateway.post())
        await until(lambda: len(self.gateway.relay.live) > before and self._decided())
        return client

    async def requests(self) -> list[dict[str, Any]]:
        reply = await self.gateway.ask(self.gateway.get("/api/requests"))
        requests: list[dict[str, Any]] = msgspec.json.decode(reply.body)["requests"]
        return requests

    def _decided(self) -> bool:
        return all(request.model is not None for request in self.gateway.relay.live)


async def two_engines(house: OpenGateway, engine: StartEngine, **tables: Any) -> TwoEngines:
    engines = await engine(), await engine()
    tables["routing"] = {"strategy": "least_pending", **tables.get("routing", {})}
    return TwoEngines(await house(*engines, **tables), *engines)


async def test_a_request_goes_to_the_engine_that_is_free_first(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    first, second = await here.fill()
    waits = await here.send()
    shown = (await here.requests())[2]
    assert (shown["phase"], shown["position"], shown["replica"]) == ("queued", 0, None)
    assert shown["waits_for"] == ["m@a", "m@b"]
    here.gates[1].set()
    reply = await waits.reply()
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    here.gates[0].set()
    assert [(await first.reply()).status, (await second.reply()).status] == [200, 200]
    await here.gateway.quiet()


async def test_the_time_in_the_room_is_that_of_a_queue(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    await here.fill()
    waits = await here.send()
    here.gates[0].set()
    assert (await waits.reply()).status == 200
    page = (await here.gateway.ask(here.gateway.get("/metrics"))).body.decode()
    waited = next(line for line in page.splitlines() if line.startswith("enginehouse_queue_wait_seconds_count"))
    assert waited.endswith(" 2.0")
    here.gates[1].set()


async def test_a_client_that_leaves_leaves_the_room(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    await here.fill()
    leaves = await here.send()
    room = here.gateway.relay.context.waiting_room
    assert len(room) == 1
    leaves.close()
    await until(lambda: len(room) == 0)
    for gate in here.gates:
        gate.set()
    await here.gateway.quiet()
    assert [len(each.calls) for each in here.engines] == [1, 1]


async def test_an_operator_cancels_a_request_in_the_room(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    await here.fill()
    waits = await here.send()
    shown = (await here.requests())[2]
    await here.gateway.ask(here.gateway.get(f"/api/requests/{shown['id']}", method="DELETE"))
    assert (await waits.reply()).status == 499
    assert len(here.gateway.relay.context.waiting_room) == 0


async def test_a_retried_request_waits_for_any_other_replica(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    here.engines[0].plays(here.gates[0], here.engines[0].RESET)
    here.engines[1].plays(here.gates[1], here.engines[1].answer())
    clients = [await here.send() for _ in range(2)]
    await until(lambda: all(each.calls for each in here.engines))
    here.gates[0].set()
    await until(lambda: here.gateway.relay.context.counters.retries["a"] == 1)
    here.gates[1].set()
    replies = [await client.reply() for client in clients]
    assert [reply.header("x-enginehouse-backend") for reply in replies] == ["b", "b"]


async def test_a_drained_backend_gets_nobody_from_the_room(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    await here.fill()
    waits = await here.send()
    here.gateway.fleet.drain("a")
    here.gates[0].set()
    await until(lambda: len(here.gateway.relay.live) == 2)
    here.gates[1].set()
    reply = await waits.reply()
    assert reply.header("x-enginehouse-backend") == "b"


async def test_a_waiting_request_counts_at_the_hosts_of_now(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    clients = [*await here.fill(), await here.send()]
    gateway = here.gateway.gateway
    queues, config = gateway.engines.queues, gateway.config
    assert {name: queue.backlog.waiting for name, queue in queues.items()} == {"a": 1, "b": 1}
    moved = msgspec.structs.replace(config.backends["b"], host="rack")
    tables = {"hosts": {"rack": HostSettings()}, "backends": {**config.backends, "b": moved}}
    reconfigure(gateway, msgspec.structs.replace(config, **tables))
    local = queues["a"].backlog
    assert queues["b"].backlog is not local
    await until(lambda: queues["b"].backlog.waiting == 1)
    assert local.waiting == 1
    for gate in here.gates:
        gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 3
    assert [queue.backlog.waiting for queue in queues.values()] == [0, 0]


async def test_a_lost_model_leads_to_its_fallback(house: OpenGateway, engine: StartEngine) -> None:
    tables = {"routing": {"fallbacks": {"m": ["n"]}}, "backend": {"models": ["m", "n"]}}
    here = await two_engines(house, engine, **tables)
    fleet = here.gateway.fleet
    await here.fill()
    waits = await here.send()
    for name in ("a", "b"):
        fleet.mark_unhealthy(name, "it hangs")
    reply = await waits.reply()
    assert (reply.status, reply.code) == (503, "fallback_exhausted")


async def test_limits_of_the_queue_hold_in_the_room(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine, scheduling={"max_queue": 1, "queue_timeout": 0.3})
    await here.fill()
    clients = [await here.gateway.client() for _ in range(2)]
    for client in clients:  # at once: the first one may wait for a moment only
        client.send(here.gateway.post())
    refused = [await client.reply() for client in clients]
    assert {(each.status, each.code) for each in refused} == {(429, "queue_full"), (504, "queue_timeout")}


async def test_a_reload_leaves_the_room_as_it_is(house: OpenGateway, engine: StartEngine) -> None:
    here = await two_engines(house, engine)
    await here.fill()
    waits = await here.send()
    whole = here.gateway.gateway
    routing = msgspec.structs.replace(whole.config.routing, strategy="cache_aware")
    reconfigure(whole, msgspec.structs.replace(whole.config, routing=routing))
    assert len(here.gateway.relay.context.waiting_room) == 1
    here.gates[1].set()
    assert (await waits.reply()).header("x-enginehouse-backend") == "b"
