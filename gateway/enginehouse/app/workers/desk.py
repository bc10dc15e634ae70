"""The tickets of one worker at the owner's queues."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.workers.messages import (
    AskExited,
    AskSlot,
    FoundUnloaded,
    Granted,
    Positions,
    Refused,
    Served,
    Submit,
    Told,
)
from enginehouse.app.workers.told_errors import telling
from enginehouse.domain.errors import ReplicaLost
from enginehouse.domain.ticket import Phase, SwapId, Ticket
from enginehouse.scheduling.request_queue import RequestQueue

Send = Callable[[msgspec.Struct], None]
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


class TicketDesk:
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
        self._asks: dict[int, int] = {}
        self._tasks = BackgroundTasks()
        self._closed = False

    def ticket(self, number: int | None) -> Ticket | None:
        """The ticket that the worker knows by a number, while it waits or its request is served."""
        found = self._tickets.get(number) if number is not None else None
        return found.ticket if found is not None else None

    def submit(self, message: Submit) -> None:
        """Ask for a replica."""
        queue = self._queues.get(message.backend)
        if queue is None:
            error = ReplicaLost(message.replica)
            self.refuse(message.ticket, error, joined_load=False)
            return
        ticket = Ticket(
            id=f"{message.request_id}/worker-{self._worker}-{message.ticket}",
            replica=message.replica,
            priority=message.priority,
            arrived=message.arrived,
            caller=message.caller,
            deadline=math.inf if message.deadline is None else message.deadline,
            turn=message.turn,
        )
        self._tickets[message.ticket] = held = _WorkerTicket(message.ticket, ticket, queue, self)
        queue.submit(ticket, held)
        if not held.is_granted and not queue.launches:
            self._recall(message.backend)

    def ask_slot(self, message: AskSlot) -> None:
        """Tell the worker whether a ticket is granted, now or as soon as workers have given back what they keep."""
        number = message.ticket.ticket
        self._asks[number] = message.call
        self.submit(message.ticket)
        if number in self._asks:
            asyncio.get_running_loop().call_later(_RECALLED_S, self._give_up, number)

    def grant(self, number: int, generation: int) -> bool:
        """Tell the worker of a grant; ``False`` if it has died."""
        if self._closed:
            return False
        self._before_grant()
        call = self._asks.pop(number, None)
        self._send(Granted(number, generation) if call is None else Told(call, generation))
        return True

    def refuse(self, number: int, error: Exception, *, joined_load: bool) -> None:
        """Tell the worker of a refusal."""
        self._tickets.pop(number, None)
        call = self._asks.pop(number, None)
        self._send(Refused(number, telling(error), joined_load) if call is None else Told(call, None))

    def cancel(self, number: int) -> None:
        """Withdraw a ticket. One whose grant is on its way to the worker is given back."""
        held = self._tickets.pop(number, None)
        if held is not None:
            self._give_back(held)

    def served(self, message: Served) -> None:
        """Note the end of a granted request."""
        held = self._tickets.pop(message.ticket, None)
        if held is None:
            return
        if message.lost:
            held.queue.connection_lost(held.ticket.replica, message.generation)
        else:
            held.queue.served(held.ticket.replica, message.keep_alive)

    def found_unloaded(self, message: FoundUnloaded) -> None:
        """Note that a server says that a model is not loaded."""
        queue = self._queues.get(message.backend)
        if queue is not None:
            queue.found_unloaded(message.replica, message.generation)

    def ask_exited(self, message: AskExited) -> None:
        """Find out whether an engine has exited, and tell the worker."""
        self._tasks.start(self._find_out(message))

    def positions(self, waiting: Mapping[Ticket, tuple[Phase, int]]) -> Positions:
        """The places of this worker's tickets among all that wait."""
        mine = ((number, waiting.get(each.ticket)) for number, each in self._tickets.items() if not each.is_granted)
        return Positions([(number, *place) for number, place in mine if place is not None])

    @property
    def waits(self) -> bool:
        """Whether a ticket has no answer yet."""
        return any(not each.is_granted for each in self._tickets.values())

    def release(self) -> None:
        """Give every ticket back, because the worker has died."""
        self._closed = True
        self._tasks.cancel()
        self._asks.clear()
        tickets, self._tickets = self._tickets, {}
        for held in tickets.values():
            self._give_back(held)

    def _give_up(self, number: int) -> None:
        call = self._asks.pop(number, None)
        if call is not None:
            self.cancel(number)
            self._send(Told(call, None))

    async def _find_out(self, message: AskExited) -> None:
        queue = self._queues.get(message.backend)
        exited = queue is None or await queue.has_exited(message.replica, message.generation)
        await asyncio.sleep(0)
        self._before_grant()  # the worker may ask the same engine again, where it is now
        self._send(Told(message.call, exited))

    def _give_back(self, held: _WorkerTicket) -> None:
        if held.is_granted:
            held.queue.served(held.ticket.replica)
        else:
            held.queue.cancel(held.ticket)
