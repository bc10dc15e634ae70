"""The owner's queues, as a worker sees them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

import msgspec

from enginehouse.app.workers.messages import (
    BackendPlace,
    CancelTicket,
    FoundUnloaded,
    Granted,
    Positions,
    Refused,
    Served,
    Submit,
    told,
)
from enginehouse.domain.errors import RequestError
from enginehouse.domain.ticket import Phase, SwapId, Ticket
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.scheduling.collaborators import TicketHolder
from enginehouse.scheduling.open_tickets import Backlog
from enginehouse.scheduling.request_queue import RequestQueue


class OwnerLine(Protocol):
    """The way to the owner."""

    def send(self, message: msgspec.Struct) -> None:
        """Send a message."""

    async def ask_exited(self, backend: str, replica: str, generation: int) -> bool:
        """Whether an engine that broke a request off has exited. Raises ``RequestError`` if the owner is gone."""


class _OpenTicket(NamedTuple):
    ticket: Ticket
    holder: TicketHolder
    queue: OwnerQueue


class OwnerQueues:
    """The queues at the owner, by backend. ``changed`` is called when a request leaves one."""

    def __init__(
        self, owner: OwnerLine, priorities: Callable[[], Mapping[str, int]], changed: Callable[[], None]
    ) -> None:
        self.by_backend: dict[str, RequestQueue] = {}
        self._owner = owner
        self._priorities = priorities
        self._changed = changed
        self._backlogs: dict[str, Backlog] = {}
        self._numbers = itertools.count(1)
        self._open: dict[int, _OpenTicket] = {}
        self._by_id: dict[str, int] = {}
        self.positions: Mapping[int, tuple[Phase, int]] = {}

    def place(self, place: BackendPlace, host: str) -> None:
        """Have the queue that the owner has for a backend of ``host``, or none."""
        known = self.by_backend.get(place.name)
        if not place.queue:
            self.by_backend.pop(place.name, None)
            return
        kind = OwnerQueue if place.queue == "own" else OwnerLineQueue
        if not isinstance(known, OwnerQueue) or type(known) is not kind:
            backlog = self._backlogs.setdefault(f"{place.queue} {host}", Backlog())
            self.by_backend[place.name] = known = kind(place.name, self, self._owner, backlog)
        known.unloaded = frozenset(place.unloaded)

    def number(self, ticket: Ticket) -> int | None:
        """The number by which the owner knows a waiting ticket."""
        return self._by_id.get(ticket.id)

    def priority(self, model: str) -> int:
        """The configured priority of a model."""
        return self._priorities().get(model, 0)

    def open(self, ticket: Ticket, holder: TicketHolder, queue: OwnerQueue) -> int:
        """Keep a ticket until the owner answers. Returns its number."""
        number = next(self._numbers)
        self._open[number] = _OpenTicket(ticket, holder, queue)
        self._by_id[ticket.id] = number
        queue.backlog.add()
        return number

    def close(self, ticket: Ticket) -> int | None:
        """Forget a ticket. Returns its number; ``None`` if it was answered."""
        number = self._by_id.pop(ticket.id, None)
        if number is not None:
            self._open.pop(number).queue.backlog.take()
        return number

    def granted(self, message: Granted) -> None:
        """Hand a grant on. A request that has left meanwhile has told the owner so."""
        found = self._open.get(message.ticket)
        if found is None:
            return
        self.close(found.ticket)
        found.queue.backlog.granted(found.queue.now())
        found.queue.began(found.ticket.replica, message.ticket, message.generation)
        if not found.holder.granted():
            found.queue.served(found.ticket.replica)

    def refused(self, message: Refused) -> None:
        """Hand a refusal on."""
        found = self._open.get(message.ticket)
        if found is not None:
            self.close(found.ticket)
            found.queue.refuse(found.holder, told(message.error), joined_load=message.joined_load)

    def put_positions(self, message: Positions) -> None:
        """Take the places of the waiting tickets."""
        self.positions = {ticket: (phase, position) for ticket, phase, position in message.places}

    def waiting_in(self, queue: OwnerQueue) -> Sequence[Waiting]:
        """The tickets that wait in ``queue``, as far as the owner has told their places."""
        found = []
        for number, (phase, position) in self.positions.items():
            waits = self._open.get(number)
            if waits is not None and waits.queue is queue:
                found.append(Waiting(ticket=waits.ticket, phase=phase, position=position))
        return found

    def left(self) -> None:
        """A request has left its backend."""
        self._changed()


class OwnerQueue(RequestQueue):
    """The queue of one backend at the owner. Its tickets name replicas."""

    launches: ClassVar[bool] = True

    def __init__(self, name: str, queues: OwnerQueues, owner: OwnerLine, backlog: Backlog) -> None:
        self.name = name
        self.backlog = backlog
        self.unloaded: frozenset[str] = frozenset()
        self._queues = queues
        self._owner = owner
        self._served: dict[str, list[int]] = {}
        self._generations: dict[str, int] = {}
        self._joined_load = False

    @property
    def last_swap(self) -> SwapId:
        return SwapId(0)  # the owner compares its own

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def place(self, replica: str) -> tuple[str, int]:
        return replica, 0

    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        number = self._queues.open(ticket, holder, self)
        deadline = None if ticket.deadline == float("inf") else ticket.deadline
        request = ticket.id.rpartition("/")[0]
        self._owner.send(
            Submit(
                number,
                self.name,
                ticket.replica,
                request,
                ticket.priority,
                ticket.arrived,
                ticket.caller,
                deadline,
                ticket.turn,
            )
        )

    def cancel(self, ticket: Ticket) -> None:
        number = self._queues.close(ticket)
        if number is not None:
            self._owner.send(CancelTicket(number))

    def began(self, replica: str, number: int, generation: int) -> None:
        """Note the grant of a ticket."""
        self._served.setdefault(replica, []).append(number)
        self._generations[replica] = generation

    def refuse(self, holder: TicketHolder, error: RequestError, *, joined_load: bool) -> None:
        """Refuse a request. ``joined_load``: for a load that it had joined."""
        self._joined_load = joined_load
        try:
            holder.refused(error)
        finally:
            self._joined_load = False

    def served(self, replica: str, keep_alive: float | None = None) -> None:
        self._owner.send(Served(self._end(replica), keep_alive))
        self._queues.left()

    def connection_lost(self, replica: str, generation: int) -> None:
        self._owner.send(Served(self._end(replica), lost=True, generation=generation))
        self._queues.left()

    def found_unloaded(self, replica: str, generation: int) -> None:
        self._owner.send(FoundUnloaded(self.name, replica, generation))

    def generation(self, replica: str) -> int:
        return self._generations.get(replica, 0)

    async def has_exited(self, replica: str, generation: int) -> bool:
        try:
            return bool(await self._owner.ask_exited(self.name, replica, generation))
        except RequestError:  # the owner is gone, and with it the engines' news
            return False

    def is_unloaded(self, replica: str) -> bool:
        return replica in self.unloaded

    def fails_load(self, replica: str, last_swap: SwapId) -> bool:
        return self._joined_load

    def waiting(self) -> Sequence[Waiting]:
        return self._queues.waiting_in(self)

    def _end(self, replica: str) -> int:
        """The number of any request that ``replica`` serves: they are alike to the owner."""
        return self._served[replica].pop()


class OwnerLineQueue(OwnerQueue):
    """The queue of a backend that runs elsewhere: all its models share one line."""

    launches: ClassVar[bool] = False

    def place(self, replica: str) -> tuple[str, int]:
        return self.name, self._queues.priority(replica.removesuffix(f"@{self.name}"))
