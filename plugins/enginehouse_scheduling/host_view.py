"""A host as its scheduler sees it: what can serve, what can be started, and what is in the way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto

from enginehouse import (
    Effects,
    HostedReplica,
    HostFacts,
    LoadFailed,
    PluginFailed,
    ReplicaState,
    RequestError,
    SchedulingLimits,
    Swapper,
)
from enginehouse_scheduling.swaps import Swap, Swaps
from enginehouse_scheduling.usage import Usage


class Obstacle(Enum):
    """Why a swap cannot start now."""

    STOPPING = auto()
    """What it evicts is being unloaded already."""
    SWAP = auto()
    """It collides with a swap in flight."""
    LOADS = auto()
    """The host loads as many as it may."""
    RESIDENCY = auto()
    """What it evicts was loaded too short a time ago."""
    BUSY = auto()
    """What it evicts is serving."""


class HostView:
    """The world through ``Effects``, together with what the scheduler itself has set going."""

    def __init__(self, effects: Effects, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        self.effects = effects
        self._swapper = swapper
        self.limits = limits
        self.swaps = Swaps()
        self.usage = Usage()
        self.stopping: set[str] = set()
        self._host = host

    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """See the host like this from now on; what was set going goes on."""
        self._swapper = swapper
        self._host = host
        self.limits = limits

    def hosted(self, replica: str) -> HostedReplica:
        """What is known of ``replica``."""
        return self._host.replicas.get(replica) or HostedReplica(replica=replica, model=replica)

    def overdue(self, now: float) -> float:
        """Who came by this time, in seconds, has waited for ``max_wait``."""
        return now - self.limits.max_wait if self.limits.max_wait else -math.inf

    def can_serve(self, replica: str) -> bool:
        """Whether ``replica`` is ready and will stay so."""
        return self.effects.replica_state(replica) is ReplicaState.READY and self._is_at_rest(replica)

    def can_start(self, replica: str) -> bool:
        """Whether ``replica`` is to be had by a swap, as far as it alone is concerned."""
        state = self.effects.replica_state(replica)
        return state not in (None, ReplicaState.READY, ReplicaState.STOPPING) and self._is_at_rest(replica)

    def is_gone(self, replica: str) -> bool:
        """Whether ``replica`` failed, or is no more."""
        return self.effects.replica_state(replica) in (None, ReplicaState.FAILED)

    def _is_at_rest(self, replica: str) -> bool:
        return replica not in self.stopping and not self.swaps.touch(replica)

    def has_room(self, replica: str) -> bool:
        """Whether one more request fits under the concurrency limit of ``replica``."""
        most = self.hosted(replica).concurrency
        return not most or self.usage.in_flight(replica) < most

    def is_loading_enough(self) -> bool:
        """Whether ``max_loads`` is reached."""
        return 0 < self.limits.max_loads <= self.swaps.loads()

    def running(self) -> list[str]:
        """Everything that is not stopped or will not be, the least recently used first."""
        return self.usage.least_recent_first(dict.fromkeys([*self.effects.running(), *self.swaps.targets()]))

    def evictions(self, target: str, running: Sequence[str], cramped: bool = False) -> Sequence[str]:
        """What must stop so that ``target`` can run, and if it is ``cramped`` whatever else can.

        Raises a ``RequestError`` if it can never run like this.
        """
        with self._blaming_the_swapper():
            evict = tuple(self._swapper.eviction_for(target, running))
        if cramped:
            evict = (*evict, *(each for each in self.dispensable(target, running) if each not in evict))
        pinned = next((hosted for hosted in map(self.hosted, evict) if hosted.pin), None)
        if pinned is not None:
            model = self.hosted(target).model
            text = f"Model '{model}' cannot be loaded: '{pinned.model}' would have to go, and it is pinned"
            raise LoadFailed(text, details={"model": model, "pinned": pinned.model})
        return evict

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """What may be stopped if ``target`` finds too little memory."""
        with self._blaming_the_swapper():
            hosted = [self.hosted(each) for each in self._swapper.dispensable(target, running)]
        model = self.hosted(target).model
        return [each.replica for each in hosted if not each.pin and each.model != model]

    def start(self, target: str, evict: Sequence[str], running: Sequence[str], cramped: bool) -> None:
        """Begin a swap. Raises ``PluginFailed`` if the swapper cannot bear it."""
        with self._blaming_the_swapper():
            self._swapper.on_swap_start(target, running)
        swap = self.effects.start_swap(target, evict)
        self.swaps.begin(Swap(id=swap, target=target, evict=evict, last_resort=cramped))
        self.usage.used(target)

    @contextmanager
    def _blaming_the_swapper(self) -> Iterator[None]:
        try:
            yield
        except RequestError:
            raise
        except Exception as error:
            raise PluginFailed(f"Swapper '{type(self._swapper).__name__}' failed: {error!r}") from error

    def obstacle(self, target: str, evict: Sequence[str], now: float) -> Obstacle | None:
        """The first thing in the way of a swap, ``None`` if it can start at ``now``."""
        if not self.stopping.isdisjoint(evict):
            return Obstacle.STOPPING
        if self.swaps.collide_with(target, evict):
            return Obstacle.SWAP
        if self.is_loading_enough():
            return Obstacle.LOADS
        if any(self.usage.loaded_after(replica, now - self.limits.min_residency) for replica in evict):
            return Obstacle.RESIDENCY
        if any(self.usage.in_flight(replica) for replica in evict):
            return Obstacle.BUSY
        return None
