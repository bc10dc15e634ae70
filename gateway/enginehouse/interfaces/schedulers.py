"""Schedulers: when a request may run, and what has to be loaded for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import SwapDone, SwapId, Ticket


class Effects(Protocol):
    """A scheduler's whole window on the world. No method waits."""

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


class Scheduler(Protocol):
    """One host's queue and its decision tree: a pure state machine over ``Effects``. No method waits."""

    def on_request(self, ticket: Ticket) -> None:
        """A new request. It ends granted, refused, joined to a swap, queued, or as a swap's starter."""

    def on_swap_done(self, done: SwapDone) -> None:
        """A swap ended, well or badly."""

    def on_serve_done(self, replica: str) -> None:
        """A granted request of ``replica`` has ended."""

    def on_cancel(self, ticket: Ticket) -> None:
        """The caller of a waiting request left."""

    def on_unload(self, targets: Sequence[str], timeout: float) -> None:
        """Somebody asked for ``targets`` to be unloaded."""

    def on_stopped(self, replica: str) -> None:
        """An unload finished, or an engine went away by itself."""

    def on_tick(self, now: float) -> None:
        """Time passed: queue timeouts, starvation and minimum residency are looked at here."""

    def on_shutdown(self, error: Exception) -> None:
        """The gateway stops: refuse whatever still waits, with ``error``."""
