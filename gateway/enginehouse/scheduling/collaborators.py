"""Interfaces between a host's queue and the floors above it, which implement them; tests use fakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import SwapDone


class EngineControl(Protocol):
    """Starts and stops the engines of one host, by replica."""

    def states(self) -> Mapping[str, ReplicaState]:
        """The current state of every replica."""

    async def wait_out_pause(self, replica: str, evict: Sequence[str]) -> None:
        """Wait until the engine may be started, with ``evict`` stopped. Raise ``LoadFailed`` if that takes long."""

    async def start(self, replica: str) -> None:
        """Start an engine and wait until it is ready. Raises ``LoadFailed``."""

    async def stop(self, replica: str, timeout: float | None) -> None:
        """Stop an engine within ``timeout`` seconds, by default the model's limit. A stopped or failed one stays so."""

    async def evict(self, replica: str) -> None:
        """Free the memory of an engine for another one: stop it, or put it to sleep if its model says so."""


class TicketHolder(Protocol):
    """Receives the answer to one ticket: a request of the relay, or a load that an operator asked for."""

    def granted(self) -> bool:
        """The replica is ready. Return ``False`` if it is no longer wanted."""

    def refused(self, error: Exception) -> None:
        """The ticket will not be granted."""


class QueueListener(Protocol):
    """Receives the events of one host's queue."""

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """A swap started."""

    def swap_done(self, done: SwapDone) -> None:
        """A swap ended."""

    def served(self, replica: str, keep_alive: float | None) -> None:
        """A granted request ended.

        ``keep_alive``: the idle seconds for which it wants the replica kept, if it says so.
        """

    def queue_changed(self) -> None:
        """The waiting requests, or their order, may have changed."""

    def stopping(self, replica: str) -> None:
        """An engine is about to be stopped, although it serves requests: end them, or they hold its end up."""

    def unloaded(self, replica: str) -> None:
        """A server says that it has no longer loaded the model of a ready replica."""

    def vacate(self, replica: str) -> None:
        """A swap that waits would evict the replica, which has requests in flight."""
