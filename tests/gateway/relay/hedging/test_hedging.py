"""Streams that are slow to begin, and the second replica that is asked for them."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import msgspec
import pytest

from enginehouse.domain.replica import Route
from enginehouse.interfaces.observers import Observer
from enginehouse.relay.retries import AT_LEAST
from tests.support.model_engine import Break, ModelEngine, StartModelEngine
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import Cut
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 40}
WHOLE = read_stream(b"".join(stream(CHAT, msgspec.json.encode(BODY))))
VLLM = {"driver": "vllm"}


class Routed(Observer):
    """Notes where requests were sent."""

    def __init__(self) -> None:
        self.backends: list[str] = []

    def routed(self, request_id: str, requirements: object, route: Route) -> None:
        self.backends.append(route.chosen.backend)


class Race:
    """A gateway whose engine ``a`` gets each stream first, and ``b`` the hedge. Each waits for its own gate."""

    def __init__(self, gateway: ServedGateway, first: ModelEngine, second: ModelEngine) -> None:
        self.gateway = gateway
        self.first = first
        self.second = second
        self.routed = Routed()
        gateway.gateway.observers.add(self.routed)

    @classmethod
    async def begin(cls, house: OpenGateway, start: StartModelEngine, **routing: Any) -> Race:
        first, second = await start(), await start()
        rules = {"hedge_after": "5ms", "strategy": "priority_only", **routing}
        backends = {"b": {"url": second.url, "models": [MODEL], "driver": "vllm", "priority": 9}}
        return cls(await house(first, backend=VLLM, backends=backends, routing=rules), first, second)

    @staticmethod
    def shut(engine: ModelEngine, events: int = 0) -> asyncio.Event:
        gate = asyncio.Event()
        engine.gate = (events, gate)
        return gate

    async def ask(self, **more: Any) -> RawClient:
        client = await self.gateway.client()
        client.send(self.gateway.post(BODY | more, b"x-request-id: mine"))
        return client

    @property
    def hedges(self) -> dict[tuple[str, str], int]:
        return dict(self.gateway.relay.context.counters.hedges)

    @property
    def calls(self) -> list[int]:
        return [len(engine.calls) for engine in (self.first, self.second)]


@pytest.fixture
async def race(house: OpenGateway, model_engine: StartModelEngine) -> Race:
    return await Race.begin(house, model_engine)


async def test_the_second_replica_wins_a_stream_that_is_slow_to_begin(race: Race) -> None:
    race.shut(race.first)
    gate = race.shut(race.second)
    client = await race.ask()
    await race.first.call()
    asked = perf_counter()
    await race.second.call()
    await race.gateway.until(lambda: perf_counter() - asked > 0.006)
    gate.set()
    reply = await client.reply()
    assert read_stream(reply.body).answer == WHOLE.answer
    assert reply.header("x-enginehouse-backend") == "b"
    assert race.hedges == {("b", "won"): 1}
    assert race.routed.backends == ["a", "b"]
    await (await race.first.call()).closed.wait()
    assert race.calls == [1, 1]
    assert race.gateway.fleet.load("a").avg_latency_ms >= 5, "an engine that stalls does not look quick"


async def test_the_first_replica_wins_if_it_begins_first(race: Race) -> None:
    gate = race.shut(race.first)
    race.shut(race.second)
    client = await race.ask()
    await race.second.call()
    gate.set()
    reply = await client.reply()
    assert read_stream(reply.body).answer == WHOLE.answer
    assert reply.header("x-enginehouse-backend") == "a"
    await (await race.second.call()).closed.wait()
    assert (race.hedges, race.calls) == ({("b", "lost"): 1}, [1, 1])


async def test_a_stream_that_begins_in_time_is_asked_of_one_replica(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    race = await Race.begin(house, model_engine, hedge_after="1m")
    gate = race.shut(race.first, events=3)
    client = await race.ask()
    await client.head()
    gate.set()
    assert race.calls == [1, 0]
    await race.gateway.quiet()
    assert race.hedges == {}


@pytest.mark.parametrize("how", ["breaks", "answers 503", "is too slow"])
async def test_the_hedge_takes_the_place_of_a_first_try_that_fails(race: Race, how: str) -> None:
    fails, gate = asyncio.Event(), race.shut(race.second)
    if how == "answers 503":
        race.first.scripts.append((fails, race.first.answer(b"{}", 503)))
    else:
        race.first.breaks = [Break(0, fails, Cut.CLOSE)]
    client = await race.ask()
    await race.second.call()
    if how == "is too slow":
        race.gateway.attempts()[0].deadline = 0.0
    fails.set()
    await race.gateway.until(lambda: race.hedges)
    gate.set()
    assert read_stream((await client.reply()).body).answer == WHOLE.answer
    assert (race.hedges, race.calls) == ({("b", "won"): 1}, [1, 1])


async def test_a_first_try_that_answers_500_is_to_blame_once_the_hedge_serves(race: Race) -> None:
    fails, gate = asyncio.Event(), race.shut(race.second)
    race.first.scripts.append((fails, race.first.answer(b"{}", 500)))
    client = await race.ask()
    await race.second.call()
    fails.set()
    await race.gateway.until(lambda: race.hedges)
    errors = [backend.last_error for backend in race.gateway.fleet.backends()]
    gate.set()
    assert (await client.reply()).status == 200
    assert errors == [None, None]
    assert [backend.last_error for backend in race.gateway.fleet.backends()] == [
        "answered 500 to what another backend could serve",
        None,
    ]


@pytest.mark.parametrize("how", ["breaks", "answers 503", "answers 400"])
async def test_a_hedge_that_fails_is_dropped(race: Race, how: str) -> None:
    gate = race.shut(race.first)
    if how == "breaks":
        race.second.breaks = [Break(0, Cut.RESET)]
    else:
        race.second.scripts.append((race.second.answer(b"{}", int(how[-3:])),))
    client = await race.ask()
    await race.gateway.until(lambda: race.hedges)
    gate.set()
    assert read_stream((await client.reply()).body).answer == WHOLE.answer
    assert (race.hedges, race.calls) == ({("b", "failed"): 1}, [1, 1])


async def test_if_both_fail_the_retry_decision_knows_both(race: Race) -> None:
    fails = asyncio.Event()
    race.first.breaks = [Break(0, fails, Cut.CLOSE)]
    race.second.breaks = [Break(0, fails, Cut.CLOSE)]
    client = await race.ask()
    await race.second.call()
    fails.set()
    assert (await client.reply()).status == 502
    assert race.calls == [1, 1]


async def test_a_winner_that_breaks_is_continued(race: Race) -> None:
    race.shut(race.first)
    race.second.breaks = [Break(6, Cut.CLOSE)]
    client = await race.ask()
    await race.first.call()
    race.first.gate = None
    assert read_stream((await client.reply()).body).answer == WHOLE.answer
    assert race.calls == [2, 1]


async def test_a_client_that_leaves_cancels_both(race: Race) -> None:
    race.shut(race.first)
    race.shut(race.second)
    client = await race.ask()
    await race.second.call()
    client.close()
    for engine in (race.first, race.second):
        await (await engine.call()).closed.wait()
    await race.gateway.quiet()
    assert race.calls == [1, 1]


async def test_without_a_budget_there_is_no_hedge(race: Race) -> None:
    for _ in range(AT_LEAST):
        race.gateway.relay.context.budget.take(perf_counter())
    gate = race.shut(race.first)
    client = await race.ask()
    refused = race.gateway.relay.context.counters.retries_refused
    await race.gateway.until(lambda: refused["hedge"] or race.hedges)
    gate.set()
    await client.reply()
    assert (dict(refused), race.calls) == ({"hedge": 1}, [1, 0])


async def test_other_requests_are_asked_of_one_replica(race: Race) -> None:
    gate = asyncio.Event()
    race.first.scripts.append((gate, race.first.answer()))
    client = await race.ask(stream=False)
    await race.first.call()
    await asyncio.sleep(0.02)
    gate.set()
    assert (await client.reply()).status == 200
    assert race.calls == [1, 0]


async def test_a_stale_connection_does_not_give_the_first_engine_the_span_of_the_hedge(
    house: OpenGateway, model_engine: StartModelEngine, slow_machine: None
) -> None:
    first, second = await model_engine(), await model_engine()
    backends = {"b": {"url": second.url, "models": [MODEL], "driver": "vllm", "priority": 9}}
    rules = {"hedge_after": "5ms", "strategy": "priority_only"}
    traces = {"traces": "otlp", "sample_ratio": 1.0}
    gateway = await house(first, backend=VLLM, backends=backends, routing=rules, telemetry=traces)
    client = await gateway.client()
    await client.ask(gateway.post({**BODY, "stream": False}))
    stale, shut = asyncio.Event(), Race.shut(second)
    first.scripts = [(stale, Cut.RESET)]
    client.send(gateway.post(BODY))
    await second.call()
    stale.set()
    assert read_stream((await client.reply()).body).answer == WHOLE.answer
    spans = [call.header(b"traceparent") for call in (*first.calls[1:], *second.calls)]
    assert spans[0] == spans[1] != spans[2]
    shut.set()
