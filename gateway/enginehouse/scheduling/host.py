"""One host's run loop: brings events to its scheduler and carries out what that decides."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from enginehouse.domain.errors import EnginehouseError, LoadFailed, RequestError
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.domain.ticket import SwapDone, SwapId, Ticket
from enginehouse.interfaces.schedulers import Scheduler, SchedulingLimits, Waiting
from enginehouse.interfaces.swappers import HostFacts, Swapper

_TICK_S = 0.25
_NEWS_S = 2.0
"""How much later than its connections break the end of an engine may be noticed: it has memory to give back."""


class Engines(Protocol):
    """The engines of one host, by replica."""

    def states(self) -> Mapping[str, ReplicaState]:
        """How each of them is now."""

    def refuse_too_soon(self, replica: str, evict: Sequence[str]) -> None:
        """Raises ``LoadFailed`` if an engine cannot be started yet, not even with ``evict`` stopped."""

    async def start(self, replica: str) -> None:
        """Start an engine and wait until it is ready. Raises ``LoadFailed``."""

    async def stop(self, replica: str, timeout: float | None) -> None:
        """Stop an engine, within ``timeout`` seconds or else its own limit; nothing to do for one at rest."""


class Waiter(Protocol):
    """Whoever holds a ticket."""

    def granted(self) -> bool:
        """The replica is ready for it; ``False`` if it is not wanted any more."""

    def refused(self, error: Exception) -> None:
        """It will not be served."""


class Listener(Protocol):
    """Whoever wants to know what happens on a host."""

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """A swap began."""

    def swap_done(self, done: SwapDone) -> None:
        """A swap ended."""

    def served(self, replica: str) -> None:
        """A granted request has ended."""

    def queue_changed(self) -> None:
        """Who waits, or in which order, may have changed."""


class Host:
    """The ``Effects`` of one scheduler, and the only one who calls it.

    The scheduler is called for one event at a time, even if carrying out its decision causes the next one.
    """

    def __init__(self, name: str, scheduler: Scheduler, engines: Engines, listener: Listener) -> None:
        self.name = name
        self._scheduler = scheduler
        self._engines = engines
        self._listener = listener
        self._waiters: dict[str, Waiter] = {}
        self._events: deque[Callable[[], None]] = deque()
        self._handling = False
        self._swap_ids = itertools.count(1)
        self._swaps: dict[SwapId, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._lives: Counter[str] = Counter()
        self._ends: dict[str, asyncio.Future[None]] = {}
        self._doubts: set[asyncio.Task[None]] = set()
        self._in_flight: Counter[str] = Counter()
        self._idle: dict[str, asyncio.Event] = {}
        self._retirements: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    # --- what happens

    def submit(self, ticket: Ticket, waiter: Waiter) -> None:
        """A request wants its replica; ``waiter`` is told, perhaps at once."""
        self._waiters[ticket.id] = waiter
        self._handle(lambda: self._scheduler.on_request(ticket))

    def cancel(self, ticket: Ticket) -> None:
        """The holder of a waiting ticket left."""
        if self._waiters.pop(ticket.id, None) is not None:
            self._handle(lambda: self._scheduler.on_cancel(ticket))

    def served(self, replica: str) -> None:
        """A granted request has ended."""
        self._in_flight[replica] -= 1
        self._listener.served(replica)
        self._handle(lambda: self._scheduler.on_serve_done(replica))
        if not self._in_flight[replica] and (idle := self._idle.pop(replica, None)) is not None:
            idle.set()

    def broke(self, replica: str, life: int) -> None:
        """A granted request has ended as its engine broke off; nobody gets its place until it is known why."""
        doubt = asyncio.ensure_future(self._settle(replica, life))
        self._doubts.add(doubt)
        doubt.add_done_callback(self._doubts.discard)

    def went_away(self, replica: str) -> None:
        """An engine ended by itself."""
        self._lives[replica] += 1
        self._retirements.pop(replica, None)
        self._handle(lambda: self._scheduler.on_stopped(replica))
        if (end := self._ends.pop(replica, None)) is not None:
            end.set_result(None)

    def life(self, replica: str) -> int:
        """Which of its lives the engine of ``replica`` is in: one more each time that it ends by itself."""
        return self._lives[replica]

    async def ends(self, replica: str, life: int) -> bool:
        """Whether the engine of ``replica`` that was in this ``life``, and broke off, ends by itself or has done so."""
        if self._lives[replica] == life and self.replica_state(replica) is ReplicaState.READY:
            end = self._ends.setdefault(replica, asyncio.get_running_loop().create_future())
            await asyncio.wait({end}, timeout=_NEWS_S)
        return self._lives[replica] != life

    async def unload(self, replicas: Sequence[str], timeout: float) -> None:
        """Stop engines, refusing whatever waits for them; returns when they are gone."""
        self._handle(lambda: self._scheduler.on_unload(replicas, timeout))
        await asyncio.gather(*(task for replica, task in self._stops.items() if replica in replicas))

    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """The configuration changed; what waits, what is served and swaps in flight stay as they are."""
        self._handle(lambda: self._scheduler.reconfigure(swapper, host, limits))

    def retire(self, replica: str, within: float) -> asyncio.Task[None]:
        """Stop an engine once it serves nothing any more, or after ``within`` seconds; done when it is gone.

        ``Engines`` must not show it as ready, so that it gets no more requests.
        """
        if (task := self._retirements.get(replica)) is None:
            task = self._retirements[replica] = asyncio.ensure_future(self._retire(replica, within))
        return task

    def turn_away(self, replicas: Collection[str], error: Callable[[str], RequestError]) -> None:
        """Refuse whatever waits for ``replicas`` with the ``error`` for each, as if the callers had left."""
        for waiting in self._scheduler.waiting():
            ticket = waiting.ticket
            if ticket.replica in replicas and (waiter := self._waiters.pop(ticket.id, None)) is not None:
                self._handle(partial(self._scheduler.on_cancel, ticket))
                waiter.refused(error(ticket.replica))

    def waiting(self) -> Sequence[Waiting]:
        """Every request that waits, the next one first."""
        return self._scheduler.waiting()

    async def close(self, error: Exception) -> None:
        """Refuse whatever waits, and give up what is being loaded."""
        self._handle(lambda: self._scheduler.on_shutdown(error))
        if self._timer is not None:
            self._timer.cancel()
        unfinished = [*self._swaps.values(), *self._doubts, *self._retirements.values()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, *self._stops.values(), return_exceptions=True)

    # --- what the scheduler decides

    def replica_state(self, replica: str) -> ReplicaState | None:
        """How a replica is now; ``None`` for one that this host does not know."""
        return self._engines.states().get(replica)

    def running(self) -> Mapping[str, ReplicaState]:
        """Every replica that is not at rest."""
        return {replica: state for replica, state in self._engines.states().items() if state not in AT_REST}

    def start_swap(self, target: str, evict: Sequence[str]) -> SwapId:
        """Begin a swap."""
        swap = SwapId(next(self._swap_ids))
        self._listener.swap_started(target, tuple(evict))
        self._swaps[swap] = task = asyncio.ensure_future(self._swap(target, tuple(evict)))
        task.add_done_callback(partial(self._swap_ended, swap, target))
        return swap

    def cancel_swap(self, swap: SwapId) -> None:
        """Give a swap up."""
        if (task := self._swaps.get(swap)) is not None:
            task.cancel()

    def grant(self, ticket: Ticket) -> bool:
        """Let a request go to its replica."""
        waiter = self._waiters.pop(ticket.id, None)
        if waiter is None:
            return False
        self._in_flight[ticket.replica] += 1  # before it is told, for it may end at once
        granted = waiter.granted()
        if not granted:
            self._in_flight[ticket.replica] -= 1
        return granted

    def refuse(self, ticket: Ticket, error: Exception) -> None:
        """Answer a request with ``error``."""
        if (waiter := self._waiters.pop(ticket.id, None)) is not None:
            waiter.refused(error)

    def stop(self, replicas: Sequence[str], timeout: float | None) -> None:
        """Begin to stop engines, within ``timeout`` seconds each or else their own limit."""
        for replica in replicas:
            if replica not in self._stops:
                self._stops[replica] = asyncio.ensure_future(self._stop(replica, timeout))

    def now(self) -> float:
        """Seconds on the event loop's clock."""
        return asyncio.get_running_loop().time()

    # --- the loop

    def _handle(self, event: Callable[[], None]) -> None:
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._events.popleft()()
        finally:
            self._handling = False
        self._listener.queue_changed()
        if self._timer is None and self._waiters:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._handle(lambda: self._scheduler.on_tick(self.now()))

    async def _settle(self, replica: str, life: int) -> None:
        await self.ends(replica, life)
        self.served(replica)

    async def _swap(self, target: str, evict: Sequence[str]) -> None:
        self._engines.refuse_too_soon(target, evict)  # else they would be stopped in vain
        await asyncio.gather(*(self._engines.stop(replica, None) for replica in evict))
        await self._engines.start(target)

    def _swap_ended(self, swap: SwapId, target: str, task: asyncio.Task[None]) -> None:
        """Also called for a swap that was given up before its first step."""
        del self._swaps[swap]
        done = SwapDone(swap=swap, target=target, error=_why_not(target, task))
        self._listener.swap_done(done)
        self._handle(lambda: self._scheduler.on_swap_done(done))

    async def _stop(self, replica: str, timeout: float | None) -> None:
        try:
            await self._engines.stop(replica, timeout)
        finally:
            del self._stops[replica]
            self._retirements.pop(replica, None)
            self._handle(lambda: self._scheduler.on_stopped(replica))

    async def _retire(self, replica: str, within: float) -> None:
        if self._in_flight[replica]:
            idle = self._idle.setdefault(replica, asyncio.Event())
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(idle.wait(), within)
        if replica in self._retirements:  # else it was stopped meanwhile, and another may run in its place
            self.stop([replica], None)
        if (stopping := self._stops.get(replica)) is not None:
            await asyncio.shield(stopping)


def _why_not(target: str, task: asyncio.Task[None]) -> Exception | None:
    if task.cancelled():
        return LoadFailed(f"The load of '{target}' was given up")
    failure = task.exception()
    if failure is None or isinstance(failure, EnginehouseError):
        return failure
    return LoadFailed(f"'{target}' could not be loaded: {failure!r}")
