"""Schedulers: when a request may run, and what has to be loaded for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import Phase, SwapDone, SwapId, Ticket
from enginehouse.interfaces.swappers import HostFacts, Swapper


class Effects(Protocol):
    """A scheduler's whole window on the world. No method waits, and none calls the scheduler before it returns."""

    def replica_state(self, replica: str) -> ReplicaState | None:
        """The state of ``replica``, or ``None`` if this host has no such replica."""

    def running(self) -> Mapping[str, ReplicaState]:
        """Every replica of the host that is not stopped."""

    def start_swap(self, target: str, evict: Sequence[str]) -> SwapId:
        """Begin to stop ``evict`` and start ``target``; ``on_swap_done`` follows."""

    def cancel_swap(self, swap: SwapId) -> None:
        """Give up a swap that nobody waits for; ``on_swap_done`` still follows, with an error."""

    def grant(self, ticket: Ticket) -> bool:
        """Let the request go to its replica. ``False``: the caller is gone, so do not count it as in flight."""

    def refuse(self, ticket: Ticket, error: Exception) -> None:
        """Answer the request with ``error``."""

    def stop(self, replicas: Sequence[str], timeout: float) -> None:
        """Begin to stop ``replicas``, within ``timeout`` seconds each; ``on_stopped`` follows for every one."""

    def now(self) -> float:
        """The scheduler's clock, in seconds."""


class SchedulingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """``[scheduling]`` and the host's ``max_loads``; times in seconds, 0 for no limit."""

    queue_timeout: float = 600.0
    max_queue: int = 1000
    min_residency: float = 0.0
    max_wait: float = 60.0
    max_loads: int = 1


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting request as others may see it. ``position``: 0 is next; ``phase``: ``QUEUED`` or ``LOADING``."""

    ticket: Ticket
    phase: Phase
    position: int


class Scheduler(ABC):
    """One host's queue and its decision tree: a pure state machine over ``Effects``. No method waits.

    Every ticket ends granted or refused, exactly once, unless it is cancelled.
    """

    @abstractmethod
    def prepare(self, effects: Effects, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """Take what it works with, once, before anything else."""

    @abstractmethod
    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """The configuration changed: work with these from now on.

        What waits, what is being served and swaps in flight stay as they are. ``host`` still has replicas that are on
        their way out, for as long as they take memory; who waited for one of them is dealt with by the host.
        """

    @abstractmethod
    def on_request(self, ticket: Ticket) -> None:
        """A new request. It ends granted, refused, joined to a swap, queued, or as a swap's starter."""

    @abstractmethod
    def on_swap_done(self, done: SwapDone) -> None:
        """A swap ended, well or badly."""

    @abstractmethod
    def on_serve_done(self, replica: str) -> None:
        """A granted request of ``replica`` has ended."""

    @abstractmethod
    def on_cancel(self, ticket: Ticket) -> None:
        """The caller of a waiting request left."""

    @abstractmethod
    def on_unload(self, targets: Sequence[str], timeout: float) -> None:
        """Somebody asked for ``targets`` to be unloaded."""

    @abstractmethod
    def on_stopped(self, replica: str) -> None:
        """An unload finished, or an engine went away by itself.

        Whoever waits for a replica that failed, or that the host has no more, is refused with ``ReplicaGone``, which
        sends the request back to routing; unless the replica is being loaded, whose end is told by ``on_swap_done``.
        """

    @abstractmethod
    def on_tick(self, now: float) -> None:
        """Time passed: queue timeouts, starvation and minimum residency are looked at here."""

    @abstractmethod
    def on_shutdown(self, error: Exception) -> None:
        """The gateway stops: refuse whatever still waits, with ``error``."""

    @abstractmethod
    def waiting(self) -> Sequence[Waiting]:
        """Every request that waits, the next one first."""
