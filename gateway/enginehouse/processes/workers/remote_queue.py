"""The owner's queues, as a worker sees them."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.domain.errors import RequestError
from enginehouse.domain.ticket import Phase, SwapId, Ticket
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.processes.workers.channel import Channel
from enginehouse.processes.workers.messages import BackendPlace, ToDesk, ToWorkerQueues
from enginehouse.processes.workers.sent_error import SentError
from enginehouse.scheduling.flow_control import Backlog
from enginehouse.scheduling.request_queue import RequestQueue, TicketHolder

_KEPT_S: Final = 0.1
"""For so long, a place that no request uses stays with the worker."""
_UNKEPT_S: Final = 1.0
"""After requests had to wait, for so long each place goes back at once."""


class _OpenTicket(NamedTuple):
    ticket: Ticket
    holder: TicketHolder
    queue: OwnerQueue


class OwnerQueues(ToWorkerQueues):
    """The queues at the owner, by backend. ``changed`` is called when a request leaves one."""

    def __init__(
        self, owner: Channel, priorities: Callable[[], Mapping[str, int]], changed: Callable[[], None]
    ) -> None:
        self.by_backend: dict[str, RequestQueue] = {}
        self.tasks = BackgroundTasks()
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

    def next_number(self) -> int:
        return next(self._numbers)

    def number(self, ticket: Ticket) -> int | None:
        """The number by which the owner knows a waiting ticket."""
        return self._by_id.get(ticket.id)

    def priority(self, model: str) -> int:
        return self._priorities().get(model, 0)

    def open(self, ticket: Ticket, holder: TicketHolder, queue: OwnerQueue) -> int:
        """Keep a ticket until the owner answers. Returns its number."""
        number = self.next_number()
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

    def granted(self, ticket: int, generation: int) -> None:
        found = self._open.get(ticket)
        if found is None:  # the request has left meanwhile, and has told the owner so
            return
        self.close(found.ticket)
        found.queue.backlog.granted(found.queue.now())
        found.queue.began(found.ticket.replica, ticket, generation)
        if not found.holder.granted():
            found.queue.served(found.ticket.replica)

    def refused(self, ticket: int, error: SentError, joined_load: bool) -> None:
        found = self._open.get(ticket)
        if found is not None:
            self.close(found.ticket)
            found.queue.refuse(found.holder, error.received(), joined_load=joined_load)

    def put_positions(self, places: list[tuple[int, Phase, int]]) -> None:
        self.positions = {ticket: (phase, position) for ticket, phase, position in places}

    def waiting_in(self, queue: OwnerQueue) -> Sequence[Waiting]:
        """The tickets that wait in ``queue``, as far as the owner has told their places."""
        found = []
        for number, (phase, position) in self.positions.items():
            waits = self._open.get(number)
            if waits is not None and waits.queue is queue:
                found.append(Waiting(ticket=waits.ticket, phase=phase, position=position))
        return found

    def left(self) -> None:
        self._changed()

    def recall(self, backend: str) -> None:
        queue = self.by_backend.get(backend)
        if isinstance(queue, OwnerQueue):
            queue.recall()


class OwnerQueue(RequestQueue):
    """The queue of one backend at the owner. Its tickets name replicas."""

    launches: ClassVar[bool] = True
    decides_here: ClassVar[bool] = False

    def __init__(self, name: str, queues: OwnerQueues, owner: Channel, backlog: Backlog) -> None:
        self.name = name
        self.backlog = backlog
        self.unloaded: frozenset[str] = frozenset()
        self._queues = queues
        self._owner = owner
        self._served: dict[str, list[int]] = {}
        self._generations: dict[str, int] = {}
        self._joined_load = False
        self._kept: dict[str, list[int]] = {}
        self._recalled_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def last_swap(self) -> SwapId:
        return SwapId(0)  # the owner compares its own

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def place(self, replica: str) -> tuple[str, int]:
        return replica, 0

    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        kept = self._kept.get(ticket.replica)
        if kept:
            self._serve(ticket.replica, kept.pop())
            if not holder.granted():
                self.served(ticket.replica)
            return
        self._owner.send(ToDesk.submit, self._queues.open(ticket, holder, self), self.name, ticket)

    async def reserve(self, replica: str) -> None:
        line, priority = self.place(replica)
        if not self._kept.get(line):  # whoever asks may leave, but the answer must not be lost
            await asyncio.shield(self._queues.tasks.start(self._reserve(line, priority)))

    async def _reserve(self, line: str, priority: int) -> None:
        number = self._queues.next_number()
        ticket = Ticket(id=f"reserve/{number}", replica=line, priority=priority, arrived=self.now())
        generation = await self._owner.ask(ToDesk.ask_slot, number, self.name, ticket)
        if generation is not None:
            self._generations[line] = generation
            self._keep(line, number)

    def cancel(self, ticket: Ticket) -> None:
        number = self._queues.close(ticket)
        if number is not None:
            self._owner.send(ToDesk.cancel, number)

    def began(self, replica: str, number: int, generation: int) -> None:
        """Note the grant of a ticket."""
        self._generations[replica] = generation
        self._serve(replica, number)

    def recall(self) -> None:
        """Give the places back that are kept for later requests, and keep none for a while."""
        self._recalled_at = self.now()
        self._give_back()

    def refuse(self, holder: TicketHolder, error: RequestError, *, joined_load: bool) -> None:
        """Refuse a request. ``joined_load``: for a load that it had joined."""
        self._joined_load = joined_load
        try:
            holder.refused(error)
        finally:
            self._joined_load = False

    def served(self, replica: str, caller: str | None = None, keep_alive: float | None = None) -> None:
        self._owner.send(ToDesk.served, self._end(replica), caller, keep_alive)
        self._queues.left()

    def connection_lost(self, replica: str, generation: int) -> None:
        self._owner.send(ToDesk.lost, self._end(replica), generation)
        self._queues.left()

    def found_unloaded(self, replica: str, generation: int) -> None:
        self._owner.send(ToDesk.found_unloaded, self.name, replica, generation)

    def generation(self, replica: str) -> int:
        return self._generations.get(replica, 0)

    async def has_exited(self, replica: str, generation: int) -> bool:
        try:
            return await self._owner.ask(ToDesk.ask_exited, self.name, replica, generation)
        except RequestError:  # the owner is gone, and with it the engines' news
            return False

    def is_unloaded(self, replica: str) -> bool:
        return replica in self.unloaded

    def fails_load(self, replica: str, last_swap: SwapId) -> bool:
        return self._joined_load

    def waiting(self) -> Sequence[Waiting]:
        return self._queues.waiting_in(self)

    def _serve(self, replica: str, number: int) -> None:
        self._served.setdefault(replica, []).append(number)

    def _keep(self, replica: str, number: int) -> None:
        """Keep a place for the next request, for a moment."""
        self._kept.setdefault(replica, []).append(number)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_KEPT_S, self._give_back)

    def _give_back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._kept = self._kept, {}
        for numbers in kept.values():
            for number in numbers:
                self._owner.send(ToDesk.served, number, None, None)

    def _end(self, replica: str) -> int:
        """The number of any request that ``replica`` serves: they are alike to the owner."""
        return self._served[replica].pop()


class OwnerLineQueue(OwnerQueue):
    """The queue of a backend that runs elsewhere: all its models share one line."""

    launches: ClassVar[bool] = False

    def place(self, replica: str) -> tuple[str, int]:
        return self.name, self._queues.priority(replica.removesuffix(f"@{self.name}"))

    def served(self, replica: str, caller: str | None = None, keep_alive: float | None = None) -> None:
        """Keep the place for the next request, if nobody waits: it need not ask the owner then."""
        if self.now() - self._recalled_at < _UNKEPT_S:
            super().served(replica, caller, keep_alive)
            return
        self._keep(replica, self._end(replica))
        self._queues.left()
