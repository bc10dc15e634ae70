"""A request that waits again for its model, because its engine broke off, owns no attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.gateway.relay.test_one_alone import without_rules
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

End = Callable[["WaitsAgain"], Awaitable[None]]


class WaitsAgain:
    """Three engines that serve one request at once are busy; the request at ``a`` breaks off, and waits again."""

    def __init__(self, gateway: ServedGateway, engines: list[ScriptedEngine]) -> None:
        self.gateway = gateway
        self.engines = engines
        self.gate, self.breaks = asyncio.Event(), asyncio.Event()
        self.client: RawClient

    async def begin(self) -> None:
        """The request is at ``a``, and two others keep ``b`` and ``c`` busy. Then ``a`` breaks off."""
        first, *others = self.engines
        first.plays(self.breaks, first.RESET)
        for each in others:
            each.plays(self.gate, each.answer())
        for each in self.engines:
            client = await self.gateway.client()
            client.send(self.gateway.post(None, b"x-request-id: waits" if each is first else b"x-other: 1"))
            await each.call()
            if each is first:
                self.client = client
        self.breaks.set()
        await until(lambda: len(self.gateway.relay.context.waiting_room) == 1)
        assert (await self.shown())["phase"] == "queued"

    async def shown(self) -> dict[str, Any]:
        reply = await self.gateway.ask(self.gateway.get("/api/requests/waits"))
        found: dict[str, Any] = msgspec.json.decode(reply.body)
        return found

    async def nothing_is_left(self) -> None:
        """All others are served; then no backend has anything, and the request one attempt."""
        self.gate.set()
        await self.gateway.quiet()
        assert self.gateway.pending() == {"a": 0, "b": 0, "c": 0}
        attempts = (await self.shown())["attempts"]
        assert [each["backend"] for each in attempts] == ["a"]


async def waits_again(house: OpenGateway, engine: StartEngine, **sections: Any) -> WaitsAgain:
    engines = [await engine() for _ in range(3)]
    sections["routing"] = {"strategy": "cache_aware", **sections.get("routing", {})}
    gateway = await house(*engines, backend={"concurrency": 1}, **sections)
    here = WaitsAgain(gateway, engines)
    await here.begin()
    return here


async def leaves(here: WaitsAgain) -> None:
    here.client.close()


async def is_cancelled(here: WaitsAgain) -> None:
    await here.gateway.ask(here.gateway.get("/api/requests/waits", method="DELETE"))
    assert (await here.client.reply()).status == 499


async def is_too_late(here: WaitsAgain) -> None:
    reply = await here.client.reply()
    assert (reply.status, reply.code) == (504, "queue_timeout")


async def loses_its_rule(here: WaitsAgain) -> None:
    without_rules(here.gateway)
    here.client.close()


@pytest.mark.parametrize("ends", [leaves, is_cancelled, is_too_late, loses_its_rule])
async def test_a_request_that_ends_while_it_waits_again_leaves_nothing(
    house: OpenGateway, engine: StartEngine, ends: End
) -> None:
    timeout = {"scheduling": {"queue_timeout": 2}} if ends is is_too_late else {}
    here = await waits_again(house, engine, **timeout)
    await ends(here)
    await until(lambda: len(here.gateway.relay.context.waiting_room) == 0)
    await here.nothing_is_left()


async def test_a_dead_attempt_has_no_time_limit(house: OpenGateway, engine: StartEngine) -> None:
    here = await waits_again(house, engine, timeouts={"first_byte": 60})
    here.gateway.pass_time(61)  # the other requests are late, and the one that waits is not
    reply = await here.client.reply()
    assert reply.status == 200, reply.body
    await here.gateway.quiet()
    assert here.gateway.pending() == {"a": 0, "b": 0, "c": 0}
