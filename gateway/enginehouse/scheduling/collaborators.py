"""What a host's queue asks of the floors above it, and tells them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import SwapDone
from enginehouse.telemetry.observers import Observers, notify


class EngineControl(ABC):
    """Starts and stops the engines of one host, by replica."""

    @abstractmethod
    def states(self) -> Mapping[str, ReplicaState]:
        """The current state of every replica."""

    def state_of(self, replica: str) -> ReplicaState | None:
        """The current state of one replica; ``None`` if it is unknown."""
        return self.states().get(replica)

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


class TicketHolder(Protocol):
    """Receives the answer to one ticket: a request of the relay, or a load that an operator asked for."""

    def granted(self) -> bool:
        """The replica is ready. Return ``False`` if it is no longer wanted."""

    def refused(self, error: Exception) -> None:
        """The ticket will not be granted."""


class QueueListener:
    """Receives the events of one host's queue, and tells ``observers`` those that they may want to know."""

    def __init__(self, observers: Observers) -> None:
        self._on_swap_started = observers.callbacks("swap_started")
        self._on_swap_done = observers.callbacks("swap_done")
        self._on_queue_changed = observers.callbacks("queue_changed")

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """A swap started."""
        notify(self._on_swap_started, target, evict)

    def swap_done(self, done: SwapDone) -> None:
        """A swap ended."""
        notify(self._on_swap_done, done)

    def queue_changed(self) -> None:
        """The waiting requests, or their order, may have changed."""
        if self._on_queue_changed:
            notify(self._on_queue_changed)

    def served(self, replica: str, caller: str | None, keep_alive: float | None) -> None:
        """A granted request ended.

        ``caller``: the name of its caller's key. ``keep_alive``: the idle seconds for which it wants the replica kept,
        if it says so.
        """

    def stopping(self, replica: str) -> None:
        """An engine is about to be stopped, although it serves requests: end them, or they hold its end up."""

    def unloaded(self, replica: str) -> None:
        """A server says that it has no longer loaded the model of a ready replica."""

    def vacate(self, replica: str) -> None:
        """A swap that waits would evict the replica, which has requests in flight."""
