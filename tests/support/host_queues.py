"""The queue of a host with a ``Fifo``; a test plays its engines and the holders of its tickets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from enginehouse import Observer, ReplicaState
from enginehouse.scheduling.host_engines import EngineControl
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.scheduling.request_queue import TicketHolder
from enginehouse.telemetry.observers import Observers
from enginehouse.tickets import HostedReplica, HostFacts, SchedulingLimits, SwapDone, Ticket
from enginehouse_kit.testing import OneAtATime
from enginehouse_scheduling.fifo import Fifo


class FakeEngines(EngineControl):
    """Engines that start and stop when the test allows it. ``problem`` makes every start fail.

    ``cut``: the replicas whose requests were cut off.
    """

    def __init__(self, shown: Mapping[str, ReplicaState]) -> None:
        self.shown = dict(shown)
        self.stopped: list[tuple[str, float | None]] = []
        self.starting = asyncio.Event()
        self.may_start = asyncio.Event()
        self.may_stop = asyncio.Event()
        self.problem: Exception | None = None
        self.cut: list[str] = []

    def states(self) -> Mapping[str, ReplicaState]:
        return self.shown

    async def start(self, replica: str) -> None:
        self.starting.set()
        await self.may_start.wait()
        if self.problem is not None:
            raise self.problem
        self.shown[replica] = ReplicaState.READY

    async def stop(self, replica: str, timeout: float | None) -> None:
        self.stopped.append((replica, timeout))
        await self.may_stop.wait()
        self.shown[replica] = ReplicaState.STOPPED

    def stopping(self, replica: str) -> None:
        self.cut.append(replica)


class FakeHolder(TicketHolder):
    """Notes its answers; ``wanted``: whether it still takes a grant."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.heard: list[str] = []
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted = wanted

    def granted(self) -> bool:
        self.heard.append("granted")
        self.answer.set_result(None)
        return self._wanted

    def refused(self, error: Exception, joined_load: bool = False) -> None:
        self.heard.append(str(error))
        self.answer.set_exception(error)
        self.answer.exception()  # tests that read ``heard`` need not retrieve it


class SwapObserver(Observer):
    """Keeps what the swaps that start evict, and the ends of swaps."""

    def __init__(self) -> None:
        self.evicted: list[tuple[str, ...]] = []
        self.ends: asyncio.Queue[SwapDone] = asyncio.Queue()

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        self.evicted.append(evict)

    def swap_done(self, done: SwapDone) -> None:
        self.ends.put_nowait(done)


class QueueStage:
    """A ``HostQueue`` and the fakes around it. ``ready``: replicas that are ready; the others are stopped."""

    def __init__(self, replicas: Iterable[str], ready: str = "", limits: SchedulingLimits | None = None) -> None:
        states = {each: ReplicaState.READY if each in ready else ReplicaState.STOPPED for each in replicas}
        self.engines, self.swaps, scheduler = FakeEngines(states), SwapObserver(), Fifo()
        self.queue = HostQueue("local", scheduler, self.engines, Observers([self.swaps]))
        facts = HostFacts(name="local", replicas={each: HostedReplica(replica=each, model=each) for each in states})
        scheduler.prepare(self.queue, OneAtATime(), facts, limits or SchedulingLimits())
        self._tickets = 0

    def ticket(self, replica: str) -> Ticket:
        self._tickets += 1
        return Ticket(id=str(self._tickets), replica=replica, arrived=self.queue.now())

    def request(self, replica: str) -> FakeHolder:
        holder = FakeHolder()
        self.queue.submit(self.ticket(replica), holder)
        return holder

    def retire(self, replica: str, within: float = 60.0) -> asyncio.Task[None]:
        self.engines.shown[replica] = ReplicaState.STOPPING
        return self.queue.retire(replica, within)


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop run until ``condition`` holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition did not come to hold")
