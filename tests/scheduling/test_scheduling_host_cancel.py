"""The host's end of ``cancel_swap``: the scheduler must hear of the end, however early the swap was given up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count

import pytest

from enginehouse import HostedReplica, HostFacts, LoadFailed, ReplicaState, SchedulingLimits, SwapDone, Ticket
from enginehouse.scheduling.host import Host
from enginehouse.testing import OneAtATime
from enginehouse_scheduling.fifo import Fifo


class Engines:
    def __init__(self) -> None:
        self.state = ReplicaState.STOPPED
        self.started = asyncio.Event()
        self.may_start = asyncio.Event()
        self.problem: Exception | None = None

    def states(self) -> Mapping[str, ReplicaState]:
        return {"a": self.state}

    def refuse_too_soon(self, replica: str, evict: Sequence[str]) -> None: ...

    async def start(self, replica: str) -> None:
        self.started.set()
        await self.may_start.wait()
        if self.problem is not None:
            raise self.problem
        self.state = ReplicaState.READY

    async def stop(self, replica: str, timeout: float | None) -> None: ...


class Caller:
    def __init__(self) -> None:
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def granted(self) -> bool:
        self.answer.set_result(None)
        return True

    def refused(self, error: Exception) -> None:
        self.answer.set_exception(error)


class Listener:
    def __init__(self) -> None:
        self.ends: asyncio.Queue[SwapDone] = asyncio.Queue()

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None: ...

    def swap_done(self, done: SwapDone) -> None:
        self.ends.put_nowait(done)

    def served(self, replica: str) -> None: ...

    def queue_changed(self) -> None: ...


class Stage:
    def __init__(self) -> None:
        self.ids = count()
        self.engines, self.listener, scheduler = Engines(), Listener(), Fifo()
        self.host = Host("local", scheduler, self.engines, self.listener)
        facts = HostFacts(name="local", replicas={"a": HostedReplica(replica="a", model="a")})
        scheduler.prepare(self.host, OneAtATime(), facts, SchedulingLimits())

    def submit(self) -> tuple[Ticket, Caller]:
        ticket, caller = Ticket(id=str(next(self.ids)), replica="a", arrived=self.host.now()), Caller()
        self.host.submit(ticket, caller)
        return ticket, caller


@pytest.mark.parametrize("begun", [False, True])
async def test_a_load_that_was_given_up_can_be_had_again(begun: bool) -> None:
    stage = Stage()
    ticket, _ = stage.submit()
    if begun:
        await stage.engines.started.wait()
    stage.host.cancel(ticket)
    done = await stage.listener.ends.get()
    assert "given up" in str(done.error)

    stage.engines.may_start.set()
    await stage.submit()[1].answer
    assert (await stage.listener.ends.get()).error is None


@pytest.mark.parametrize("problem", [LoadFailed("no memory"), ValueError("no memory")])
async def test_a_load_that_fails_is_answered_as_one(problem: Exception) -> None:
    stage = Stage()
    stage.engines.problem = problem
    stage.engines.may_start.set()

    with pytest.raises(LoadFailed, match="no memory"):
        await stage.submit()[1].answer
