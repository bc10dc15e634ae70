"""The bookkeeping of a scheduler: what its host can serve and load now, and a guard against starvation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import count
from typing import ClassVar, NamedTuple

import msgspec

from enginehouse import ReplicaState, RequestError, Swapper
from enginehouse.tickets import (
    Effects,
    HostedReplica,
    HostFacts,
    ReplicaLine,
    SchedulingLimits,
    SwapId,
    TicketAge,
    TicketQueue,
)

__all__ = [
    "ReplicaUsage",
    "SchedulingState",
    "StarvationClaims",
    "SwapInFlight",
    "SwapObstacle",
    "SwapsInFlight",
]


class SwapObstacle(Enum):
    """Why a swap cannot start now."""

    STOPPING = auto()
    """A replica that it evicts is being unloaded."""
    SWAP = auto()
    """It collides with a swap in flight."""
    LOADS = auto()
    """The host loads ``max_loads`` replicas already."""
    RESIDENCY = auto()
    """A replica that it evicts has been loaded for less than ``min_residency``."""
    BUSY = auto()
    """A replica that it evicts has requests in flight."""


class SchedulingState:
    """A scheduler's knowledge: the replicas, through ``Effects``, and the swaps, unloads and requests that it started.

    Update ``swaps`` (``SwapsInFlight``), ``usage`` (``ReplicaUsage``) and ``stopping`` with each decision and each
    event of the scheduler. ``start`` does so itself.
    """

    def __init__(self, effects: Effects, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        self.effects = effects
        self.limits = limits
        self.swaps = SwapsInFlight()
        self.usage = ReplicaUsage()
        self.stopping: set[str] = set()
        self._swapper = swapper
        self._host = host

    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """Use another configuration; swaps, unloads and requests in flight stay."""
        self._swapper = swapper
        self._host = host
        self.limits = limits

    def hosted(self, replica: str) -> HostedReplica:
        """The facts of ``replica``, defaults if the host does not have it."""
        return self._host.replicas.get(replica) or HostedReplica(replica=replica, model=replica)

    def overdue(self, now: float) -> float:
        """The latest time of arrival, in seconds, of a ticket that has waited for ``max_wait``."""
        return now - self.limits.max_wait if self.limits.max_wait else -math.inf

    def can_serve(self, replica: str) -> bool:
        """Whether ``replica`` is ready and neither swapped nor unloaded."""
        return self.effects.replica_state(replica) is ReplicaState.READY and self.is_at_rest(replica)

    def can_start(self, replica: str) -> bool:
        """Whether the state of ``replica`` allows a swap to load it."""
        state = self.effects.replica_state(replica)
        return state not in (None, ReplicaState.READY, ReplicaState.STOPPING) and self.is_at_rest(replica)

    def is_at_rest(self, replica: str) -> bool:
        """Whether ``replica`` is neither swapped nor unloaded."""
        return replica not in self.stopping and replica not in self.swaps.touched

    def is_lost(self, replica: str) -> bool:
        """Whether ``replica`` failed or is no longer known."""
        return self.effects.replica_state(replica) in (None, ReplicaState.FAILED)

    def is_unplaced(self, swap: SwapInFlight) -> bool:
        """Whether a load waits for a place, and has stopped nothing for it yet."""
        state = self.effects.replica_state
        waits = state(swap.target) is ReplicaState.PLACING
        return waits and all(state(each) is ReplicaState.READY for each in swap.evict)

    def has_room(self, replica: str) -> bool:
        """Whether one more request fits under the concurrency limit of ``replica``: the configured or the reported."""
        most = self.hosted(replica).concurrency or self._host.reported.get(replica, 0)
        return not most or self.usage.in_flight(replica) < most

    def is_loading_enough(self) -> bool:
        """Whether the host loads ``max_loads`` replicas already."""
        return 0 < self.limits.max_loads <= len(self.swaps.loads())

    def running(self) -> list[str]:
        """The ``running`` argument of a swapper: running replicas and swap targets, the least recently used first.

        Without the target of a cancelled swap that the host has no longer: it has stopped.
        """
        running = dict.fromkeys(self.effects.running())
        if self.swaps.touched:
            running.update(dict.fromkeys(each for each in self.swaps.targets() if each in self._host.replicas))
        return self.usage.least_recent_first(running)

    def evictions(self, target: str, running: Sequence[str], cramped: bool = False) -> Sequence[str]:
        """The replicas to stop so that ``target`` can run; if it is ``cramped``, every dispensable one too.

        Raises a ``RequestError`` if ``target`` can never run like this.
        """
        evict = tuple(self._swapper.eviction_for(target, running))
        if cramped:
            evict = (*evict, *(each for each in self.dispensable(target, running) if each not in evict))
        return evict

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The replicas that may be stopped if ``target`` finds too little memory."""
        return self._swapper.dispensable(target, running)

    def start(self, target: str, evict: Sequence[str], running: Sequence[str], cramped: bool) -> None:
        """Start a swap and remember it. Raises ``PluginFailed`` if the swapper fails in ``on_swap_start``."""
        self._swapper.on_swap_start(target, running)
        swap = self.effects.start_swap(target, evict)
        self.swaps.add(SwapInFlight(id=swap, target=target, evict=evict, last_resort=cramped))
        self.usage.used(target)

    def obstacle(self, target: str, evict: Sequence[str], now: float) -> SwapObstacle | None:
        """The first obstacle to a swap, ``None`` if it can start at ``now``."""
        if not self.stopping.isdisjoint(evict):
            return SwapObstacle.STOPPING
        if self.swaps.touched:
            if self.swaps.collide_with(target, evict):
                return SwapObstacle.SWAP
            if self.is_loading_enough():
                return SwapObstacle.LOADS
        residency = self.limits.min_residency
        if residency and any(self.usage.loaded_after(replica, now - residency) for replica in evict):
            return SwapObstacle.RESIDENCY
        if any(map(self.usage.in_flight, evict)):
            return SwapObstacle.BUSY
        return None


class SwapInFlight(msgspec.Struct, kw_only=True):
    """A swap that was started and has not ended.

    A ``cancelled`` swap still takes memory until its end is reported. A swap of ``last_resort`` also evicted every
    dispensable replica, so its failure for lack of memory is final.
    """

    id: SwapId
    target: str
    evict: Sequence[str]
    cancelled: bool = False
    last_resort: bool = False

    def collides_with(self, target: str, evict: Sequence[str]) -> bool:
        """Whether a swap of ``target`` that evicts ``evict`` must wait for this one."""
        return collide(target, evict, self.target, self.evict)


class SwapsInFlight:
    """The swaps in flight. No two of them touch the same replica.

    ``touched``: the swap, cancelled or not, that loads or evicts each replica. Live; only read it.
    """

    def __init__(self) -> None:
        self._swaps: dict[SwapId, SwapInFlight] = {}
        self.touched: dict[str, SwapInFlight] = {}

    def loads(self) -> Sequence[SwapInFlight]:
        """The swaps that were not cancelled, the oldest first."""
        return [swap for swap in self._swaps.values() if not swap.cancelled]

    def loading(self, replica: str) -> SwapInFlight | None:
        """The swap that loads ``replica``, unless it was cancelled."""
        swap = self.touched.get(replica)
        return swap if swap is not None and swap.target == replica and not swap.cancelled else None

    def targets(self) -> Iterable[str]:
        """The targets, also those of cancelled swaps, which may be half loaded."""
        return [swap.target for swap in self._swaps.values()]

    def touch(self, replica: str) -> bool:
        """Whether a swap, cancelled or not, loads or evicts ``replica``."""
        return replica in self.touched

    def collide_with(self, target: str, evict: Sequence[str]) -> bool:
        """Whether a swap of ``target`` that evicts ``evict`` must wait for one of these."""
        of_target = self.touched.get(target)
        return not self.touched.keys().isdisjoint(evict) or (of_target is not None and of_target.target != target)

    def add(self, swap: SwapInFlight) -> None:
        """Remember a swap that was just started."""
        self._swaps[swap.id] = swap
        self.touched.update(dict.fromkeys((swap.target, *swap.evict), swap))

    def remove(self, swap: SwapId) -> SwapInFlight | None:
        """Return a swap that ended. ``None`` if it is not in flight: the report is late or repeated."""
        ended = self._swaps.pop(swap, None)
        if ended is not None:
            for replica in (ended.target, *ended.evict):
                self.touched.pop(replica, None)
        return ended


def collide(target: str, evict: Sequence[str], other: str, others_evict: Sequence[str]) -> bool:
    """Whether two swaps exclude each other: one evicts the other's target, or both evict the same replica."""
    return target in others_evict or other in evict or any(replica in others_evict for replica in evict)


class ReplicaUsage:
    """Counts requests in flight and remembers when each replica was last used and loaded. Times are in seconds."""

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._last_use: Counter[str] = Counter()
        self._loaded_at: dict[str, float] = {}
        self._uses = count(1)

    def in_flight(self, replica: str) -> int:
        """The number of granted requests that have not ended."""
        return self._in_flight[replica]

    def begin(self, replica: str) -> None:
        """Count a granted request."""
        self._in_flight[replica] += 1
        self._last_use[replica] = next(self._uses)

    def end(self, replica: str) -> None:
        """Count the end of a granted request."""
        self._in_flight[replica] = max(0, self._in_flight[replica] - 1)
        self._last_use[replica] = next(self._uses)

    def used(self, replica: str) -> None:
        """Make ``replica`` the most recently used one."""
        self._last_use[replica] = next(self._uses)

    def least_recent_first(self, replicas: Iterable[str]) -> list[str]:
        """Sort by last use. Replicas that were never used come first, in the order given."""
        return sorted(replicas, key=self._last_use.__getitem__)

    def loaded(self, replica: str, now: float) -> None:
        """Remember that ``replica`` became ready at ``now``."""
        self._loaded_at[replica] = now

    def loaded_after(self, replica: str, time: float) -> bool:
        """Whether ``replica`` became ready later than ``time``."""
        return self._loaded_at.get(replica, time) > time


class _Claim(NamedTuple):
    """A swap that a ticket has waited for too long.

    ``holds`` means that only requests in flight prevent it, so newer requests for the replicas that it evicts wait.
    While it waits for a load, an unload or a residency, holding them back would not help.
    """

    age: TicketAge
    target: str
    evict: Sequence[str]
    holds: bool
    cramped: bool


class StarvationClaims:
    """The claims of the tickets that are overdue at ``now``, the oldest first. They are found when first asked for."""

    NO_BARRIER: ClassVar[TicketAge] = (math.inf, 0)

    def __init__(self, queue: TicketQueue, state: SchedulingState, now: float) -> None:
        self._queue = queue
        self._state = state
        self._now = now
        self._claims: list[_Claim] = []
        self._searched = not queue.waiting

    def barrier(self, replica: str) -> TicketAge:
        """Return the age above which requests wait for ``replica`` although it is ready."""
        if not self._searched:
            self._search()
        return min(
            (claim.age for claim in self._claims if claim.holds and replica in claim.evict), default=self.NO_BARRIER
        )

    def block(self, age: TicketAge, target: str, evict: Sequence[str], running: Sequence[str]) -> bool:
        """Whether a claim older than ``age`` holds back a swap of ``target``.

        It does if the two swaps collide, or if it would have more to evict after the load of ``target``.
        """
        if not self._searched:
            self._search()
        return bool(self._claims) and any(
            collide(target, evict, claim.target, claim.evict) or self._would_grow(claim, target, evict, running)
            for claim in self._claims
            if claim.age < age
        )

    def _search(self) -> None:
        self._searched = True
        now, state = self._now, self._state
        overdue = state.overdue(now)
        lines = [
            line
            for line in self._queue.lines()
            if line.oldest.age[0] <= overdue and line.claims_from <= now and state.can_start(line.replica)
        ]
        if lines:
            running = state.running()
            for line in sorted(lines, key=lambda line: line.oldest.age):
                self._add(line, running, now)

    def _add(self, line: ReplicaLine, running: Sequence[str], now: float) -> None:
        target, age = line.replica, line.oldest.age
        try:
            evict = self._state.evictions(target, running, line.cramped)
        except RequestError:
            return
        obstacle = self._state.obstacle(target, evict, now)
        if obstacle is not SwapObstacle.STOPPING:
            holds = obstacle in (None, SwapObstacle.BUSY) and not self.block(age, target, evict, running)
            self._claims.append(_Claim(age, target, evict, holds, line.cramped))

    def _would_grow(self, claim: _Claim, target: str, evict: Sequence[str], running: Sequence[str]) -> bool:
        afterwards = [replica for replica in running if replica not in evict and replica != target]
        try:
            grown = self._state.evictions(claim.target, [*afterwards, target], claim.cramped)
        except RequestError:
            return True
        return not set(grown) <= set(claim.evict)
