"""A request's slot in the queue of a host."""

from __future__ import annotations

from typing import Protocol

from enginehouse.domain.errors import LoadFailed, RequestError
from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.request_queue import RequestQueue


class SlotHolder(Protocol):
    """A request that waits for a slot."""

    def granted(self) -> None:
        """The replica is ready for the request."""

    def rejected(self, error: RequestError) -> None:
        """The replica will not serve the request."""


class QueueSlot:
    """Waits for a replica that the gateway launches or that has a limit, then occupies it until ``release``.

    - ``is_granted``: it waits no longer.
    - ``in_doubt``: the engine broke the request off and may have exited.
    - ``joined_load``: it was refused because a load failed that had begun before it came.
    - ``keep_alive``: the idle seconds for which the request wants the replica kept, if it says so.
    """

    def __init__(self, holder: SlotHolder, queue: RequestQueue, ticket: Ticket) -> None:
        self._holder = holder
        self._queue = queue
        self.keep_alive: float | None = None
        self.is_granted = False
        self._released = False
        self._generation = 0
        self.in_doubt = self.joined_load = False
        ticket.replica, extra = queue.place(ticket.replica)
        ticket.priority += extra
        self.ticket = ticket

    @property
    def launched(self) -> bool:
        """Whether the gateway launches the engine."""
        return self._queue.launches

    @property
    def unloaded(self) -> bool:
        """Whether an operator unloads the engine."""
        return self._queue.is_unloaded(self.ticket.replica)

    def take(self) -> None:
        """Join the queue. The holder gets the answer, possibly before this returns."""
        self._queue.submit(self.ticket, self)

    def granted(self) -> bool:
        self.is_granted = True
        self._generation = self._queue.generation(self.ticket.replica)
        self._holder.granted()
        return True

    def refused(self, error: Exception, joined_load: bool = False) -> None:
        self.joined_load = joined_load
        self._holder.rejected(error if isinstance(error, RequestError) else LoadFailed(str(error)))

    async def engine_exited(self) -> bool:
        """Wait a moment for news of the engine that broke the request off; whether it has exited."""
        exited = await self._queue.has_exited(self.ticket.replica, self._generation)
        self.in_doubt = False
        return exited

    def report_unloaded(self) -> None:
        """Report that the server refused the request because its model is not loaded."""
        self._queue.found_unloaded(self.ticket.replica, self._generation)

    def release(self) -> None:
        """Give the slot back, or leave the queue. Later calls do nothing."""
        if self._released:
            return
        self._released = True
        if not self.is_granted:
            self._queue.cancel(self.ticket)
        elif self.in_doubt and self.launched:
            self._queue.connection_lost(self.ticket.replica, self._generation)
        else:
            self._queue.served(self.ticket.replica, self.ticket.caller, self.keep_alive)
