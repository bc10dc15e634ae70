"""A remote backend with a limit has a queue at the gateway, as launched ones have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from enginehouse.config.schema import HostSettings
from tests.support.changed_config import reconfigure
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import Cut, ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway, configure
from tests.support.waiting import until


class Limited:
    """A gateway in front of ``engine``, which reports a limit of one request. Each answer waits for ``gate``."""

    def __init__(self, gateway: ServedGateway, engine: ScriptedEngine) -> None:
        self.gateway = gateway
        self.engine = engine
        self.gate = asyncio.Event()
        gateway.gateway.engines.remote.report("a", 1)

    async def send(self, body: Mapping[str, object] | None = None) -> RawClient:
        self.engine.plays(self.gate, self.engine.answer())
        client = await self.gateway.client()
        before = len(self.gateway.relay.live)
        client.send(self.gateway.post(body))
        await until(lambda: len(self.gateway.relay.live) > before and self._routed())
        return client

    async def shown(self) -> list[tuple[str, int | None]]:
        return [(each["phase"], each["position"]) for each in await self.requests()]

    async def requests(self) -> list[dict[str, Any]]:
        reply = await self.gateway.ask(self.gateway.get("/api/requests"))
        requests: list[dict[str, Any]] = msgspec.json.decode(reply.body)["requests"]
        return requests

    def _routed(self) -> bool:
        return all(request.route is not None for request in self.gateway.relay.live)


async def test_requests_over_the_limit_wait_with_a_position(house: OpenGateway, engine: StartEngine) -> None:
    here = Limited(await house(served := await engine()), served)
    clients = [await here.send() for _ in range(3)]
    await served.call()
    assert await here.shown() == [("serving", None), ("queued", 0), ("queued", 1)]
    assert len(served.calls) == 1
    here.gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 3
    assert len(served.calls) == 3
    await here.gateway.quiet()


async def test_a_backend_without_a_limit_has_no_queue(house: OpenGateway, engine: StartEngine) -> None:
    here = Limited(await house(served := await engine()), served)
    here.gateway.gateway.engines.remote.report("a", None)
    clients = [await here.send() for _ in range(3)]
    assert here.gateway.gateway.engines.queues == {}
    assert await here.shown() == [("serving", None)] * 3
    here.gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 3


async def test_a_configured_limit_wins_over_the_reported_one(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(served := await engine(), backend={"concurrency": 2})
    here = Limited(gateway, served)
    clients = [await here.send() for _ in range(3)]
    assert await here.shown() == [("serving", None), ("serving", None), ("queued", 0)]
    here.gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 3


@pytest.mark.parametrize("limit", [2, None])
async def test_a_limit_that_grows_or_goes_lets_waiting_requests_pass(
    house: OpenGateway, engine: StartEngine, limit: int | None
) -> None:
    here = Limited(await house(served := await engine()), served)
    clients = [await here.send() for _ in range(2)]
    here.gateway.gateway.engines.remote.report("a", limit)
    assert await here.shown() == [("serving", None)] * 2
    here.gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 2


async def test_a_full_queue_and_a_long_wait_are_refused(house: OpenGateway, engine: StartEngine) -> None:
    limits = {"max_queue": 1, "queue_timeout": 0.05}
    here = Limited(await house(served := await engine(), scheduling=limits), served)
    first = await here.send()
    others = [await here.gateway.client() for _ in range(2)]
    for client in others:  # at once: the first one may wait for a moment only
        client.send(here.gateway.post())
    refused = [await client.reply() for client in others]
    assert {(each.status, each.code) for each in refused} == {(429, "queue_full"), (504, "queue_timeout")}
    here.gate.set()
    assert (await first.reply()).status == 200


async def test_the_backends_of_a_host_share_its_limit_of_waiting_requests(
    house: OpenGateway, engine: StartEngine
) -> None:
    served, other = await engine(), await engine()
    here = Limited(await house(served, other, scheduling={"max_queue": 2}), served)
    here.gateway.gateway.engines.remote.report("b", 1)
    other.plays(here.gate, other.answer())
    other.plays(here.gate, other.answer())
    clients = [await here.send() for _ in range(4)]
    assert sorted(phase for phase, _ in await here.shown()) == ["queued", "queued", "serving", "serving"]
    full = await here.gateway.ask(here.gateway.post())
    assert (full.status, full.code) == (429, "queue_full")
    here.gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 4
    await here.gateway.quiet()


async def test_priorities_of_models_count(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(
        served := await engine(), backend={"models": ["m", "urgent"]}, scheduling={"priorities": {"urgent": 5}}
    )
    here = Limited(gateway, served)
    for model in ("m", "m", "urgent"):
        await here.send({"model": model})
    assert [(each["model"], each["position"]) for each in await here.requests()] == [
        ("m", None),
        ("m", 1),
        ("urgent", 0),
    ]


async def test_a_broken_request_gives_its_place_to_the_next_at_once(house: OpenGateway, engine: StartEngine) -> None:
    here = Limited(await house(served := await engine(), routing={"max_retries": 0}), served)
    served.plays(Cut.RESET)
    broken = await here.gateway.client()
    broken.send(here.gateway.post())
    next_one = await here.send()
    here.gate.set()
    assert (await broken.reply()).status == 502
    assert (await next_one.reply()).status == 200


async def test_requests_waiting_for_an_unhealthy_backend_are_routed_again(
    house: OpenGateway, engine: StartEngine
) -> None:
    here = Limited(await house(served := await engine(), await engine()), served)
    here.gateway.fleet.drain("b")
    await here.send()
    waits = await here.send()
    here.gateway.fleet.undrain("b")
    here.gateway.fleet.mark_unhealthy("a", "it hangs")
    reply = await waits.reply()
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")


async def test_requests_waiting_for_a_removed_backend_are_routed_again(house: OpenGateway, engine: StartEngine) -> None:
    here = Limited(await house(served := await engine(), other := await engine()), served)
    here.gateway.fleet.drain("b")
    await here.send()
    waits = await here.send()
    here.gateway.fleet.undrain("b")
    here.gateway.fleet.succeeded("b")
    both = configure([served, other], None, None, {})
    only = msgspec.structs.replace(both, backends={"b": both.backends["b"]})
    whole = here.gateway.gateway
    reconfigure(whole, only)
    reply = await waits.reply()
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert here.gateway.gateway.engines.queues == {}


async def test_a_backend_that_changes_its_host_is_counted_there(house: OpenGateway, engine: StartEngine) -> None:
    served, other = await engine(), await engine()
    here = Limited(await house(served, other, scheduling={"max_queue": 2}), served)
    remote = here.gateway.gateway.engines.remote
    remote.report("b", 1)
    clients = []
    for name, away in (("a", "b"), ("b", "a")):
        here.gateway.fleet.undrain(name)
        here.gateway.fleet.drain(away)
        here.engine = served if name == "a" else other
        clients += [await here.send() for _ in range(2)]
    line = remote.queues["b"]
    both = configure([served, other], None, None, {"scheduling": {"max_queue": 2}})
    moved = msgspec.structs.replace(both.backends["b"], host="rack")
    whole = {"hosts": {"rack": HostSettings()}, "backends": {**both.backends, "b": moved}}
    reconfigure(here.gateway.gateway, msgspec.structs.replace(both, **whole))
    assert remote.queues["b"] is line
    assert [each.backlog.waiting for each in remote.queues.values()] == [1, 1]
    clients.append(await here.send())
    here.gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 5
    assert [each.backlog.waiting for each in remote.queues.values()] == [0, 0]
