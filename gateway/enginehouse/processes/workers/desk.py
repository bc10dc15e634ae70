"""The tickets of one worker at the owner's queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from enginehouse.domain.errors import ReplicaLost
from enginehouse.domain.ticket import Phase, SwapId, Ticket
from enginehouse.processes.workers.channel import Send
from enginehouse.processes.workers.messages import ToDesk, ToWorkerQueues
from enginehouse.processes.workers.sent_error import SentError
from enginehouse.scheduling.request_queue import RequestQueue

_RECALLED_S: Final = 0.02
"""So long, a ticket that must be granted at once waits for places that workers keep."""


class _WorkerTicket:
    """One ticket, until the request has ended. Implements ``TicketHolder``."""

    def __init__(self, number: int, ticket: Ticket, queue: RequestQueue, desk: TicketDesk) -> None:
        self.ticket = ticket
        self.queue = queue
        self.is_granted = False
        self._number = number
        self._last_swap: SwapId = queue.last_swap
        self._desk = desk

    def granted(self) -> bool:
        self.is_granted = self._desk.grant(self._number, self.queue.generation(self.ticket.replica))
        return self.is_granted

    def refused(self, error: Exception) -> None:
        joined = self.queue.fails_load(self.ticket.replica, self._last_swap)
        self._desk.refuse(self._number, error, joined_load=joined)


class TicketDesk(ToDesk):
    """Submits the tickets of a worker, and gives them all back when it has died.

    ``queues``: by backend; live. ``before_grant`` is called first, so that the worker knows where the engine is.
    ``recall`` asks all workers for the places at a backend that they keep for later requests.
    """

    def __init__(
        self,
        worker: int,
        queues: Mapping[str, RequestQueue],
        send: Send,
        before_grant: Callable[[], None],
        recall: Callable[[str], None],
    ) -> None:
        self._recall = recall
        self._worker = worker
        self._queues = queues
        self._send = send
        self._before_grant = before_grant
        self._tickets: dict[int, _WorkerTicket] = {}
        self._asks: dict[int, asyncio.Future[int | None]] = {}
        self._closed = False

    def ticket(self, number: int | None) -> Ticket | None:
        """The ticket that the worker knows by a number, while it waits or its request is served."""
        found = self._tickets.get(number) if number is not None else None
        return found.ticket if found is not None else None

    def submit(self, number: int, backend: str, ticket: Ticket) -> None:
        queue = self._queues.get(backend)
        if queue is None:
            self.refuse(number, ReplicaLost(ticket.replica), joined_load=False)
            return
        # workers count from 1 each, and ids say which request it is
        ticket.id = f"{ticket.id.rpartition('/')[0]}/worker-{self._worker}-{number}"
        self._tickets[number] = held = _WorkerTicket(number, ticket, queue, self)
        queue.submit(ticket, held)
        if not held.is_granted and not queue.launches:
            self._recall(backend)

    async def ask_slot(self, number: int, backend: str, ticket: Ticket) -> int | None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int | None] = loop.create_future()
        self._asks[number] = answer
        self.submit(number, backend, ticket)
        timer = loop.call_later(_RECALLED_S, self._give_up, number)
        try:
            return await answer
        finally:
            timer.cancel()

    def grant(self, number: int, generation: int) -> bool:
        """Tell the worker of a grant; ``False`` if it has died."""
        if self._closed:
            return False
        self._before_grant()
        if not self._answered(number, generation):
            self._send(ToWorkerQueues.granted, number, generation)
        return True

    def refuse(self, number: int, error: Exception, *, joined_load: bool) -> None:
        """Tell the worker of a refusal."""
        self._tickets.pop(number, None)
        if not self._answered(number, None):
            self._send(ToWorkerQueues.refused, number, SentError.of(error), joined_load)

    def cancel(self, ticket: int) -> None:
        held = self._tickets.pop(ticket, None)
        if held is not None:
            self._give_back(held)

    def served(self, ticket: int, caller: str | None, keep_alive: float | None) -> None:
        held = self._tickets.pop(ticket, None)
        if held is not None:
            held.queue.served(held.ticket.replica, caller, keep_alive)

    def lost(self, ticket: int, generation: int) -> None:
        held = self._tickets.pop(ticket, None)
        if held is not None:
            held.queue.connection_lost(held.ticket.replica, generation)

    def found_unloaded(self, backend: str, replica: str, generation: int) -> None:
        queue = self._queues.get(backend)
        if queue is not None:
            queue.found_unloaded(replica, generation)

    async def ask_exited(self, backend: str, replica: str, generation: int) -> bool:
        queue = self._queues.get(backend)
        exited = queue is None or await queue.has_exited(replica, generation)
        await asyncio.sleep(0)
        self._before_grant()  # the worker may ask the same engine again, where it is now
        return exited

    def positions(self, waiting: Mapping[Ticket, tuple[Phase, int]]) -> list[tuple[int, Phase, int]]:
        """The places of this worker's tickets among all that wait."""
        mine = ((number, waiting.get(each.ticket)) for number, each in self._tickets.items() if not each.is_granted)
        return [(number, *place) for number, place in mine if place is not None]

    @property
    def waits(self) -> bool:
        """Whether a ticket has no answer yet."""
        return any(not each.is_granted for each in self._tickets.values())

    def release(self) -> None:
        """Give every ticket back, because the worker has died."""
        self._closed = True
        self._asks.clear()
        tickets, self._tickets = self._tickets, {}
        for held in tickets.values():
            self._give_back(held)

    def _give_up(self, number: int) -> None:
        if self._answered(number, None):
            self.cancel(number)

    def _answered(self, number: int, generation: int | None) -> bool:
        """Answer ``ask_slot``; ``False`` for a ticket that did not come by it."""
        asked = self._asks.pop(number, None)
        if asked is not None and not asked.done():
            asked.set_result(generation)
        return asked is not None

    def _give_back(self, held: _WorkerTicket) -> None:
        if held.is_granted:
            held.queue.served(held.ticket.replica)
        else:
            held.queue.cancel(held.ticket)
