"""The engines of one host, as its queue orders them and counts their requests."""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import NamedTuple

from enginehouse.domain.errors import EnginehouseError, LoadCancelled, LoadFailed
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.domain.ticket import SwapDone, SwapId

_log = logging.getLogger(__name__)


class EngineControl(ABC):
    """Starts and stops the engines of one host, by replica, and learns what becomes of their requests."""

    @abstractmethod
    def states(self) -> Mapping[str, ReplicaState]:
        """The current state of every replica."""

    def state_of(self, replica: str) -> ReplicaState | None:
        """The current state of one replica; ``None`` if it is unknown."""
        return self.states().get(replica)

    def running(self) -> Mapping[str, ReplicaState]:
        """The states of the replicas that are neither stopped nor failed."""
        return {replica: state for replica, state in self.states().items() if state not in AT_REST}

    def prepared(self, replica: str, evict: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """Have everything for the start of an engine that can be had before ``evict`` are stopped for it.

        Raise ``LoadFailed`` if it cannot be started even then. The end of the context gives up what was not used.
        """
        return nullcontext()

    @abstractmethod
    async def start(self, replica: str) -> None:
        """Start an engine and wait until it is ready. Raises ``LoadFailed``."""

    @abstractmethod
    async def stop(self, replica: str, timeout: float | None) -> None:
        """Stop an engine within ``timeout`` seconds, by default the model's limit. A stopped or failed one stays so."""

    async def evict(self, replica: str) -> None:
        """Free the memory of an engine for another one: stop it, or put it to sleep if its model says so."""
        await self.stop(replica, None)

    async def freed(self, replica: str) -> None:
        """Return when an earlier gateway, which still answers requests, no longer uses an engine."""

    def stopping(self, replica: str) -> None:
        """An engine is about to be stopped, although it serves requests: end them, or they hold its end up."""

    def unloaded(self, replica: str) -> None:
        """A server says that it has no longer loaded the model of a ready replica."""

    def vacate(self, replica: str) -> None:
        """A swap that waits would evict the replica, which has requests in flight."""


class SwapTasks:
    """Carries out swaps: evicts engines, then starts the target. ``on_done`` gets the end of each.

    ``last``: the swap that was started last, or 0. ``fastest``: the seconds of the fastest load of each target so far.
    """

    def __init__(self, engines: EngineControl, on_done: Callable[[SwapDone], None]) -> None:
        self._engines = engines
        self._on_done = on_done
        self._tasks: dict[SwapId, asyncio.Task[None]] = {}
        self.last = SwapId(0)
        self._began: dict[str, float] = {}
        self.fastest: dict[str, float] = {}

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(list(self._tasks.values()))

    def start(self, target: str, evict: Sequence[str]) -> SwapId:
        self.last = swap = SwapId(self.last + 1)
        self._began[target] = began = asyncio.get_running_loop().time()
        self._tasks[swap] = task = asyncio.ensure_future(self._swap(target, evict))
        task.add_done_callback(partial(self._ended, swap, target, began))
        return swap

    def cancel(self, swap: SwapId) -> None:
        """Cancel a swap; ``on_done`` follows with an error."""
        if (task := self._tasks.get(swap)) is not None:
            task.cancel()

    def seconds_left(self, target: str) -> float:
        """The seconds until ``target`` is ready, at the pace of its fastest load so far; 0 if there was none."""
        now = asyncio.get_running_loop().time()
        return max(0.0, self._began.get(target, now) + self.fastest.get(target, 0.0) - now)

    async def _swap(self, target: str, evict: Sequence[str]) -> None:
        async with self._engines.prepared(target, evict):
            await asyncio.gather(*map(self._engines.evict, evict))
            await self._engines.start(target)

    def _ended(self, swap: SwapId, target: str, began: float, task: asyncio.Task[None]) -> None:
        """Runs also for a swap cancelled before its first step, which no code inside ``_swap`` would see."""
        del self._tasks[swap]
        if self._began.get(target) == began:  # else a later swap has the same target
            del self._began[target]
        error = _why_not(target, task)
        if error is None:
            took = asyncio.get_running_loop().time() - began
            self.fastest[target] = min(took, self.fastest.get(target, took))
        self._on_done(SwapDone(swap=swap, target=target, error=error))


class _Use(NamedTuple):
    """The end of the last request of a replica: when, whose it was, and the idle seconds that it asked for.

    ``others``: the end of the last request of any other caller; ``None`` if there was none.
    """

    at: float
    caller: str | None = None
    keep_alive: float | None = None
    others: float | None = None

    def ends(self, ttl: float) -> float:
        """When the replica is due. What a caller asked for must not take it away from other callers."""
        idle = ttl or math.inf
        if self.keep_alive is None:
            return self.at + idle
        asked = self.at + self.keep_alive
        return asked if self.others is None else max(asked, self.others + idle)


class IdleReplicas:
    """Remembers the last uses of each replica. Times are seconds on any clock."""

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}

    def used(self, replica: str, now: float, caller: str | None = None, keep_alive: float | None = None) -> None:
        """Note the end of a request of ``caller``.

        ``keep_alive``: the seconds that take the place of the ttl until the next request, as far as this caller goes.
        """
        last = self._uses.get(replica)
        others = None if last is None else last.others if last.caller == caller else last.at
        self._uses[replica] = _Use(now, caller, keep_alive, others)

    def due(
        self,
        states: Mapping[str, ReplicaState],
        granted: Mapping[str, int],
        ttls: Mapping[str, float],
        now: float,
    ) -> Sequence[str]:
        """The replicas to put to sleep or to stop: ready ones that serve no request and have been idle long enough.

        A newly ready one counts as used at ``now``. ``granted``: the exact number of requests of each replica, counted
        from their grant to the call of ``used``. ``ttls``: the idle seconds after which each is due, 0 for never.
        Pinned replicas have a ttl too: a pin only protects from eviction. Those that are due are forgotten, for an
        owner may load one again before the next call.
        """
        ready = [replica for replica in ttls if states.get(replica) is ReplicaState.READY]
        self._uses = {replica: self._uses.get(replica) or _Use(now) for replica in ready}
        due = [each for each in ready if not granted.get(each) and self._uses[each].ends(ttls[each]) <= now]
        for replica in due:
            del self._uses[replica]
        return due


def _why_not(target: str, task: asyncio.Task[None]) -> Exception | None:
    if task.cancelled():
        return LoadCancelled(f"The load of '{target}' was cancelled")
    failure = task.exception()
    if failure is None or isinstance(failure, EnginehouseError):
        return failure
    _log.error("'%s' could not be loaded", target, exc_info=failure)
    return LoadFailed(f"'{target}' could not be loaded: {type(failure).__name__}; see the gateway's log")
