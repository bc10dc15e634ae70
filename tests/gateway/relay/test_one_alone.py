"""One request never stops the clock of the others: a reload takes its strategy away, or its own part raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec
import pytest

from enginehouse.config.routing import RuleSettings
from enginehouse.interfaces.driver_support import DriverSupport
from tests.support.changed_config import reconfigure
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

RULES = {"rules": [{"header": "x-own: 1", "strategy": "round_robin"}]}
OWN = b"x-own: 1"


def without_rules(gateway: ServedGateway) -> None:
    """What a reload does that removes all rules."""
    whole = gateway.gateway
    rules: list[RuleSettings] = []
    routing = msgspec.structs.replace(whole.config.routing, rules=rules)
    reconfigure(whole, msgspec.structs.replace(whole.config, routing=routing))


async def test_a_live_request_outlives_its_rule(house: OpenGateway, engine: StartEngine) -> None:
    breaks, serves = await engine(), await engine()
    gateway = await house(breaks, serves, routing=RULES)
    gate = asyncio.Event()
    for each in (breaks, serves):
        each.plays(gate, each.RESET)
    client = await gateway.client()
    client.send(gateway.post(None, OWN))
    await until(lambda: breaks.calls or serves.calls)
    without_rules(gateway)
    gate.set()
    served = serves if breaks.calls else breaks
    served._scripts.clear()
    assert (await client.reply()).status == 200


async def test_a_waiting_request_outlives_its_rule(house: OpenGateway, engine: StartEngine) -> None:
    """With ``cache_aware``, requests wait for their model; so they still do after the reload."""
    here = await engine()
    there = await engine()
    rules = {"rules": [{"header": "x-own: 1", "strategy": "cache_aware"}], "strategy": "least_pending"}
    gateway = await house(here, there, routing=rules)
    for name in ("a", "b"):
        gateway.gateway.engines.remote.report(name, 1)
    gate = asyncio.Event()
    clients = []
    for each in (here, there):
        each.plays(gate, each.answer())
    for _ in range(4):
        clients.append(client := await gateway.client())
        client.send(gateway.post(None, OWN))
    await until(lambda: len(gateway.relay.live) == 4)
    await until(lambda: len(gateway.relay.context.waiting_room) == 2)
    without_rules(gateway)
    gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * 4
    assert (await gateway.ask()).status == 200


class BrokenDrivers(Mapping[str, DriverSupport]):
    """The drivers of a gateway, one of which is a defect that no plugin's guard catches."""

    def __init__(self, drivers: Mapping[str, DriverSupport], broken: str) -> None:
        self._drivers = drivers
        self._broken = broken

    def __getitem__(self, name: str) -> DriverSupport:
        if name == self._broken:
            raise RuntimeError("this driver is a defect")
        return self._drivers[name]

    def __iter__(self) -> NoReturn:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._drivers)


async def test_a_request_that_raises_when_its_engine_breaks_is_answered(
    house: OpenGateway, engine: StartEngine
) -> None:
    breaks, other, gate = await engine(), await engine(), asyncio.Event()
    gateway = await house(breaks, other, routing={"strategy": "priority_only"})
    breaks.plays(gate, breaks.RESET)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await breaks.call()
    context = gateway.relay.context
    context.drivers = BrokenDrivers(context.drivers, "b")
    gate.set()
    assert (await client.reply()).status == 500


async def test_a_request_that_raises_in_the_sweep_fails_alone(
    house: OpenGateway, engine: StartEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Two requests at engines that never answer: the retry of one raises, the other one has its time limit."""
    silent = [await engine() for _ in range(2)]
    gateway = await house(
        *silent,
        timeouts={"first_byte": 0.3},
        models={"own": {}},
        backends={"c": {"url": silent[0].url, "models": ["own"], "timeouts": {"first_byte": 0.6}}},
        routing={"strategy": "priority_only"},
    )
    gateway.fleet.succeeded("c")
    for each in silent:
        each.otherwise((asyncio.Event(),))
    context = gateway.relay.context
    raises, waits = await gateway.client(), await gateway.client()
    raises.send(gateway.post(None, b"x-request-id: the-defect", stream=True))
    await until(lambda: silent[0].calls)
    context.drivers = BrokenDrivers(context.drivers, "b")
    waits.send(gateway.post({"model": "own"}))
    with caplog.at_level(logging.ERROR, "enginehouse.relay"):
        failed = await raises.reply()
    assert (failed.status, failed.code) == (500, "internal_error")
    assert "this driver is a defect" in caplog.text
    late: Any = await waits.reply()
    assert (late.status, late.code) == (504, "upstream_timeout")
