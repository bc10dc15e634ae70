"""A host whose engines are taken away while it serves: what ``Host`` does of that by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from enginehouse import HostedReplica, HostFacts, LoadFailed, ReplicaState, SchedulingLimits, Ticket
from enginehouse.scheduling.host import Host
from enginehouse.testing.fake_effects import OneAtATime
from enginehouse_scheduling.fifo import Fifo

READY, STOPPED, STOPPING = ReplicaState.READY, ReplicaState.STOPPED, ReplicaState.STOPPING


class Engines:
    """Engines that start at once, and stop when the test says so."""

    def __init__(self) -> None:
        self.shown = {"a": READY, "b": STOPPED}
        self.stopped: list[tuple[str, float | None]] = []
        self.may_end = asyncio.Event()

    def states(self) -> Mapping[str, ReplicaState]:
        return self.shown

    def refuse_too_soon(self, replica: str, evict: Sequence[str]) -> None: ...

    async def start(self, replica: str) -> None:
        self.shown[replica] = READY

    async def stop(self, replica: str, timeout: float | None) -> None:
        self.stopped.append((replica, timeout))
        await self.may_end.wait()
        self.shown[replica] = STOPPED


class Caller:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def granted(self) -> bool:
        self.heard.append("granted")
        return True

    def refused(self, error: Exception) -> None:
        self.heard.append(str(error))


class Nobody:
    def swap_started(self, target: str, evict: tuple[str, ...]) -> None: ...
    def swap_done(self, done: Any) -> None: ...
    def served(self, replica: str) -> None: ...
    def queue_changed(self) -> None: ...


class Stage:
    def __init__(self) -> None:
        self.engines = Engines()
        scheduler = Fifo()
        self.host = Host("local", scheduler, self.engines, Nobody())
        facts = HostFacts(name="local", replicas={each: HostedReplica(replica=each, model=each) for each in "ab"})
        scheduler.prepare(self.host, OneAtATime(), facts, SchedulingLimits())
        self._tickets = 0

    def request(self, replica: str) -> Caller:
        self._tickets += 1
        caller = Caller()
        self.host.submit(Ticket(id=str(self._tickets), replica=replica, arrived=self.host.now()), caller)
        return caller

    def retire(self, replica: str, within: float = 60.0) -> asyncio.Task[None]:
        self.engines.shown[replica] = STOPPING
        return self.host.retire(replica, within)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that")


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_an_engine_that_serves_is_stopped_when_it_has_served(stage: Stage) -> None:
    first, second = stage.request("a"), stage.request("a")
    gone = stage.retire("a")
    stage.host.served("a")
    late = stage.request("a")
    await asyncio.sleep(0)
    assert (first.heard, second.heard, late.heard) == (["granted"], ["granted"], [])
    assert stage.engines.stopped == []
    stage.host.served("a")
    await until(lambda: stage.engines.stopped)
    assert not gone.done()
    assert stage.engines.stopped == [("a", None)], "with the time that its model gives it"
    stage.engines.may_end.set()
    await gone
    await until(lambda: late.heard)
    assert late.heard == ["granted"], "by the engine that is started then"


async def test_an_engine_that_serves_for_too_long_is_stopped(stage: Stage) -> None:
    stage.request("a")
    stage.engines.may_end.set()
    await stage.retire("a", within=0.01)
    assert stage.engines.stopped == [("a", None)]


async def test_an_idle_engine_is_stopped_at_once(stage: Stage) -> None:
    stage.request("a")
    stage.host.served("a")
    stage.engines.may_end.set()
    await stage.retire("a")
    assert stage.engines.stopped == [("a", None)]


async def test_an_engine_is_retired_once(stage: Stage) -> None:
    stage.request("a")
    assert stage.retire("a") is stage.retire("a")
    stage.engines.may_end.set()
    stage.host.served("a")
    await stage.retire("a")
    assert stage.engines.stopped == [("a", None)]


async def test_an_engine_that_ended_by_itself_is_not_stopped_in_the_place_of_the_next_one(stage: Stage) -> None:
    stage.request("a")
    gone = stage.retire("a")
    stage.engines.shown["a"] = ReplicaState.FAILED
    stage.host.went_away("a")
    again = stage.request("a")
    await until(lambda: again.heard == ["granted"])
    stage.host.served("a")
    stage.host.served("a")
    await gone
    assert stage.engines.stopped == []


async def test_a_caller_that_left_before_its_grant_is_not_waited_for(stage: Stage) -> None:
    class Gone(Caller):
        def granted(self) -> bool:
            return False

    stage.host.submit(Ticket(id="gone", replica="a", arrived=stage.host.now()), Gone())
    stage.engines.may_end.set()
    await stage.retire("a")
    assert stage.engines.stopped == [("a", None)]


async def test_who_waits_for_what_is_gone_is_turned_away_and_nobody_else(stage: Stage) -> None:
    served, first, second = stage.request("a"), stage.request("b"), stage.request("b")
    assert [waiting.ticket.replica for waiting in stage.host.waiting()] == ["b", "b"]
    stage.host.turn_away({"b"}, lambda replica: LoadFailed(f"no {replica}"))
    assert (served.heard, first.heard, second.heard) == (["granted"], ["no b"], ["no b"])
    assert stage.host.waiting() == []


async def test_the_load_that_only_they_waited_for_is_given_up(stage: Stage) -> None:
    stage.engines.shown["a"] = STOPPED
    started = asyncio.Event()

    async def start(replica: str) -> None:
        started.set()
        await asyncio.Event().wait()

    stage.engines.start = start  # type: ignore[method-assign]
    caller = stage.request("b")
    await started.wait()
    stage.host.turn_away({"b"}, lambda replica: LoadFailed("no"))
    assert caller.heard == ["no"]
    other = stage.request("a")
    stage.engines.start = Engines.start.__get__(stage.engines)  # type: ignore[method-assign]
    await until(lambda: other.heard == ["granted"])
