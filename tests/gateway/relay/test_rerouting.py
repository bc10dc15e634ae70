"""Engines that exit by themselves: requests that wait for them, or were sent to them, are routed again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from enginehouse import Health, ReplicaState
from enginehouse.errors import LoadFailed
from enginehouse.scheduling import host_queue
from tests.support.launched_engine import Launch, LaunchedEngine
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import event

Alone = Callable[..., Awaitable[tuple[ServedGateway, ScriptedEngine, LaunchedEngine]]]


@pytest.fixture
def alone(house: OpenGateway, engine: StartEngine, launched: Launch) -> Alone:
    """A gateway with one engine, which it launches and which is ready."""

    async def build(concurrency: int = 0, max_retries: int = 2) -> tuple[ServedGateway, ScriptedEngine, LaunchedEngine]:
        served = await engine()
        gateway = await house(served, routing={"max_retries": max_retries})
        managed = launched(gateway, "a", concurrency=concurrency)
        managed.state = ReplicaState.READY
        return gateway, served, managed

    return build


async def waiting_client(gateway: ServedGateway, managed: LaunchedEngine) -> RawClient:
    """A client whose request waits in the queue."""
    before = len(managed.queue.waiting())
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.until(lambda: len(managed.queue.waiting()) > before)
    return client


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_requests_that_wait_for_room_are_routed_again(
    house: OpenGateway, engine: StartEngine, launched: Launch, elsewhere: bool
) -> None:
    first, other = await engine(), await engine()
    gateway = await house(first, other)
    gateway.fleet.drain("b")
    managed = launched(gateway, "a", concurrency=1)
    managed.state = ReplicaState.READY
    gate = asyncio.Event()
    first.streams(event(), gate, first.CLOSE)
    streaming = await gateway.client()
    streaming.send(gateway.post(stream=True))
    await first.call()
    waiting = [await waiting_client(gateway, managed) for _ in range(3)]
    arrivals = [each.ticket.arrived for each in managed.queue.waiting()]
    if elsewhere:
        gateway.fleet.undrain("b")
        gateway.fleet.drain("a")
    managed.exits()
    if not elsewhere:
        assert [each.ticket.arrived for each in managed.queue.waiting()] == arrivals, "they have waited all the time"
        await managed.gets_ready()
    gate.set()
    for client in waiting:
        reply = await client.reply()
        assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b" if elsewhere else "a")
    assert managed.starts == (0 if elsewhere else 1)
    assert gateway.relay.context.counters.retries == {}, "they were not sent before"


async def test_a_request_is_not_routed_again_for_ever(alone: Alone) -> None:
    gateway, served, managed = await alone(concurrency=1)
    served.plays(asyncio.Event())
    serving = await gateway.client()
    serving.send(gateway.post())
    await served.call()
    client = await waiting_client(gateway, managed)
    for _ in range(10):
        managed.exits()
        await managed.gets_ready()
        assert len(managed.queue.waiting()) == 1
    managed.exits()
    reply = await client.reply()
    assert (reply.status, reply.code) == (503, "load_failed")
    assert "was lost" in reply.error["message"]
    serving.close()


@pytest.mark.parametrize("starts", [True, False])
async def test_who_joins_a_load_that_fails_gets_one_more(alone: Alone, starts: bool) -> None:
    gateway, _, managed = await alone()
    managed.state = ReplicaState.STOPPED
    first = await waiting_client(gateway, managed)
    await managed.starting()
    joined = [await waiting_client(gateway, managed) for _ in range(3)]
    await managed.does_not_start(LoadFailed("no"))
    assert (await first.reply()).code == "load_failed"
    await gateway.until(lambda: managed.starts == 2)
    assert len(managed.queue.waiting()) == 3
    if starts:
        await managed.gets_ready()
    else:
        await managed.does_not_start(LoadFailed("no again"))
    replies = [await client.reply() for client in joined]
    assert [reply.status for reply in replies] == [200 if starts else 503] * 3
    assert starts or {reply.error["message"] for reply in replies} == {"no again"}
    assert managed.starts == 2
    assert gateway.relay.context.counters.retries == {}


async def test_who_joins_a_load_that_fails_goes_to_another_replica(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    gateway = await house(await engine(), await engine())
    gateway.fleet.drain("b")
    managed = launched(gateway, "a")
    waiting = [await waiting_client(gateway, managed) for _ in range(3)]
    await managed.starting()
    gateway.fleet.undrain("b")
    await managed.does_not_start(LoadFailed("no"))
    for client in waiting:
        reply = await client.reply()
        assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert managed.starts == 1


@pytest.mark.parametrize("noticed", ["before", "after"])
async def test_what_was_sent_is_sent_again_once_its_engine_was_launched_anew(alone: Alone, noticed: str) -> None:
    gateway, served, managed = await alone()
    gate = asyncio.Event()
    served.plays(gate, served.CLOSE)
    client = await gateway.client()
    client.send(gateway.post({"x": 1}))
    await served.call()
    if noticed == "before":
        managed.exits()
    gate.set()
    if noticed == "after":
        await gateway.until(lambda: any(each.exit for each in managed.queue._ends.values()))
        managed.exits()
    await managed.gets_ready()
    assert (await client.reply()).status == 200
    assert [each.body for each in served.calls] == [b'{"model":"m","x":1}'] * 2
    assert gateway.relay.context.counters.retries == {"a": 1}
    assert gateway.fleet.health("a") is Health.HEALTHY


async def test_it_is_sent_again_only_once(alone: Alone) -> None:
    gateway, served, managed = await alone()
    for _ in range(2):
        served.plays(served.CLOSE)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.until(lambda: any(each.exit for each in managed.queue._ends.values()))
    managed.exits()
    await managed.gets_ready()
    reply = await client.reply()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert len(served.calls) == 2


@pytest.mark.parametrize(("method", "times"), [("GET", 2), ("POST", 1)])
async def test_what_may_not_reach_an_engine_twice_is_not_sent_again(alone: Alone, method: str, times: int) -> None:
    gateway, served, managed = await alone()
    served.plays(served.CLOSE)
    client = await gateway.client()
    client.send(gateway.get("/upstream/m/x", b"content-length: 0", method=method))
    call = await served.call()
    await call.closed.wait()
    if times == 2:
        await gateway.until(lambda: any(each.exit for each in managed.queue._ends.values()))
    managed.exits()
    if times == 2:
        await managed.gets_ready()
    assert (await client.reply()).status == (200 if times == 2 else 502)
    assert len(served.calls) == times


async def test_an_engine_that_lives_on_has_failed_its_request(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_queue, "_NOTICE_S", 0.01)
    gateway, served, managed = await alone()
    served.plays(served.CLOSE)
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert "broke off" in str(gateway.fleet.backends()[0].last_error)
    assert managed.starts == 0


async def test_an_engine_that_was_stopped_on_purpose_is_not_launched_for_what_it_served(alone: Alone) -> None:
    gateway, served, managed = await alone()
    gate = asyncio.Event()
    served.plays(gate, served.CLOSE)
    client = await gateway.client()
    client.send(gateway.post())
    await served.call()
    managed.state = ReplicaState.STOPPING
    gate.set()
    assert (await client.reply()).status == 502
    assert managed.starts == 0


@pytest.mark.parametrize("retries", [2, 0])
async def test_its_place_is_held_until_it_is_known_what_became_of_the_engine(alone: Alone, retries: int) -> None:
    gateway, served, managed = await alone(concurrency=1, max_retries=retries)
    gate = asyncio.Event()
    served.plays(gate, served.CLOSE)
    sent = await gateway.client()
    sent.send(gateway.post())
    await served.call()
    waiting = await waiting_client(gateway, managed)
    gate.set()
    await gateway.until(lambda: any(each.exit for each in managed.queue._ends.values()))
    assert len(managed.queue.waiting()) == 1, "no request is sent to an engine that may have exited"
    managed.exits()
    await managed.gets_ready()
    assert [(await each.reply()).status for each in (sent, waiting)] == [200 if retries else 502, 200]


async def test_a_client_may_leave_meanwhile(alone: Alone) -> None:
    gateway, served, managed = await alone()
    gate = asyncio.Event()
    served.plays(gate, served.CLOSE)
    client = await gateway.client()
    client.send(gateway.post())
    await served.call()
    gate.set()
    await gateway.until(lambda: any(each.exit for each in managed.queue._ends.values()))
    client.reset()
    await gateway.quiet()
    managed.exits()
    assert managed.starts == 0


async def test_a_time_limit_says_nothing_of_an_end(alone: Alone) -> None:
    gateway, served, managed = await alone()
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post())
    await served.call()
    gateway.pass_time(601)
    assert (await client.reply()).status == 504
    assert managed.starts == 0
