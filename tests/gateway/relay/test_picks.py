"""Requests of which the gateway decides only where they go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enginehouse.relay.pick import Pick, Picked, is_among
from tests.support.keys import callers_of, key
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

PATH = "/v1/chat/completions"


class Asker:
    """A ``PickClient`` that keeps what it is told."""

    def __init__(self) -> None:
        self.choice: Picked | None = None
        self.refusal: tuple[int, str] | None = None

    def picked(self, choice: Picked) -> None:
        self.choice = choice

    def refused(self, status: int, lines: bytes, body: bytes) -> None:
        self.refusal = (status, json.loads(body)["error"]["code"])


def ask(
    gateway: ServedGateway, body: object = None, fallbacks: int = 0, address: str = "", **headers: str
) -> tuple[Asker, Pick]:
    asker = Asker()
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    pick = gateway.relay.open_pick(asker, PATH, lines, fallbacks, address)
    pick.begin(json.dumps(body or {"model": MODEL, "messages": []}).encode())
    return asker, pick


def port_of(engine: ScriptedEngine) -> int:
    return int(engine.url.rpartition(":")[2])


def pending(gateway: ServedGateway) -> int:
    return sum(each.load.pending for each in gateway.fleet.snapshot.candidates(MODEL))


async def test_it_counts_as_load_until_its_end(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(served := await engine())
    asker, pick = ask(gateway, x_request_id="mine")
    assert asker.choice is not None
    assert asker.choice.addresses == [(served.host, port_of(served))]
    assert b"x-request-id: mine\r\n" in asker.choice.lines
    assert pending(gateway) == 1
    assert list(gateway.relay.live) == [pick]
    pick.answered(200)
    pick.piece(b'{"usage": {"prompt_tokens": 3, "completion_tokens": 2}}')
    pick.ended()
    pick.client_left()  # too late to count
    assert pending(gateway) == 0
    [record] = [each.record for each in gateway.relay.context.activity.newest_first()]
    assert (record.outcome, record.tokens_out, record.status) == ("served", 2, 200)
    assert [each.status for each in record.attempts] == [200]


async def test_another_gateway_learns_for_whom_it_is_asked_from_this_one_alone(
    house: OpenGateway, engine: StartEngine
) -> None:
    backend = {"api_key": "secret-of-front", "pass_caller": True}
    gateway = await house(await engine(), backend=backend, auth={"keys": [key("ann", priority=3)]})
    asker = Asker()
    pick = gateway.relay.open_pick(asker, PATH, [(b"x-enginehouse-caller", b"bob")])
    pick.begin(json.dumps({"model": MODEL, "messages": []}).encode(), callers_of(gateway.gateway).named("ann"))
    assert asker.choice is not None
    assert b"x-enginehouse-caller: ann\r\nx-enginehouse-priority: 3\r\n" in asker.choice.lines
    assert asker.choice.withheld >= {b"x-enginehouse-caller", b"x-enginehouse-priority"}
    pick.client_left()


async def test_a_stream_is_asked_as_it_came(house: OpenGateway, engine: StartEngine) -> None:
    """Nobody would remove from the answer what the gateway adds to the question."""
    gateway = await house(await engine(), await engine())
    gateway.relay.context.asks_usage = True
    body = {"model": MODEL, "messages": [], "stream": True}
    asker, pick = ask(gateway, body)
    assert asker.choice is not None
    assert json.loads(asker.choice.body) == body
    pick.ended()


async def test_fallbacks_are_other_engines_in_their_order(house: OpenGateway, engine: StartEngine) -> None:
    engines = [await engine() for _ in range(3)]
    gateway = await house(*engines)
    asker, pick = ask(gateway, fallbacks=1)
    assert asker.choice is not None
    assert len(set(asker.choice.addresses)) == 2
    assert pending(gateway) == 1
    pick.ended()


async def test_it_goes_only_where_it_may(house: OpenGateway, engine: StartEngine) -> None:
    a, b = await engine(), await engine()
    gateway = await house(a, b)
    for among, port in (([b.host], None), ([f"{b.host}:{port_of(b)}"], port_of(b)), ([], 0), (["10.0.0.1:1"], 0)):
        asker = Asker()
        pick = gateway.relay.open_pick(asker, PATH, [])
        pick.limit(among)
        pick.begin(json.dumps({"model": MODEL, "messages": []}).encode())
        if port == 0:
            assert asker.refusal == (503, "no_healthy_backend")
        else:
            assert asker.choice is not None
            assert port in (None, asker.choice.addresses[0][1])
            pick.ended()


@pytest.mark.parametrize(
    ("among", "is_there"), [(["::1"], True), (["[::1]:80"], True), (["[::1]:81", "::2"], False), ([], False)]
)
def test_addresses_of_ipv6_are_known_with_and_without_their_port(among: list[str], is_there: bool) -> None:
    assert is_among(("::1", 80), among) is is_there


async def test_the_limits_of_addresses_hold(house: OpenGateway, engine: StartEngine, tmp_path: Path) -> None:
    gateway = await house(await engine(), server={"per_address": {"max_concurrent": 1}})
    gateway.gateway.callers.open(tmp_path)
    _, first = ask(gateway, address="192.0.2.1")
    refused, _ = ask(gateway, address="192.0.2.1")
    other, second = ask(gateway, address="192.0.2.2")
    first.ended()
    again, third = ask(gateway, address="192.0.2.1")
    assert (refused.refusal or (0,))[0] == 429
    assert other.choice
    assert again.choice
    second.ended()
    third.ended()


async def test_a_limited_engine_holds_it(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    gateway.gateway.engines.remote.report("a", 1)
    first, begun = ask(gateway)
    second, held = ask(gateway)
    third, left = ask(gateway)
    assert first.choice is not None
    assert second.choice is third.choice is None
    left.client_left()
    begun.ended()
    assert second.choice is not None
    assert third.choice is None
    held.ended()
    assert not gateway.relay.live


async def test_a_refusal_is_told_once(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    asker, pick = ask(gateway, {"model": "nope"})
    assert asker.refusal == (404, "model_not_found")
    asker.refusal = None
    pick.cancel()
    assert asker.refusal is None


async def test_an_engine_that_broke_off_has_failed(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), checks={"failures": 1})
    asker, pick = ask(gateway)
    assert asker.choice is not None
    pick.broke("its connection was lost")
    assert ask(gateway)[0].refusal == (503, "no_healthy_backend")
    assert [each.record.code for each in gateway.relay.context.activity.newest_first()][1] == "upstream_error"
