"""The tickets of a worker's requests at the owner's queues: the worker's side, then the owner's."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple
from weakref import WeakValueDictionary

from enginehouse.aio.clock import loop_clock
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.domain.errors import ReplicaLost, RequestError
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.processes.workers.channel import Channel, Send, SentError
from enginehouse.processes.workers.messages import BackendPlace
from enginehouse.scheduling.flow_control import Backlog
from enginehouse.scheduling.request_queue import RequestQueue, TicketHolder

_KEPT_S: Final = 0.1
"""For so long, a place that no request uses stays with the worker."""
_UNKEPT_S: Final = 1.0
"""After requests had to wait, for so long each place goes back at once."""
_RECALLED_S: Final = 0.02
"""So long, a ticket that must be granted at once waits for places that workers keep."""


class _OpenTicket(NamedTuple):
    ticket: Ticket
    holder: TicketHolder
    queue: OwnerQueue


class OwnerQueues:
    """The queues at the owner, by backend. ``changed`` is called when a request leaves one."""

    def __init__(
        self, owner: Channel, priorities: Callable[[], Mapping[str, int]], changed: Callable[[], None]
    ) -> None:
        self.by_backend: dict[str, RequestQueue] = {}
        self.tasks = BackgroundTasks()
        self._owner = owner
        self.priorities = priorities
        self.changed = changed
        self._backlogs = WeakValueDictionary[str, Backlog]()
        self.numbers = itertools.count(1)
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
        backlog = self._backlogs.setdefault(f"{place.queue} {host}", Backlog())
        if not isinstance(known, OwnerQueue) or type(known) is not kind:
            self.by_backend[place.name] = known = kind(place.name, self, self._owner, backlog)
        elif known.backlog is not backlog:
            known.backlog = known.backlog.moved(sum(each.queue is known for each in self._open.values()), backlog)
        known.unloaded = frozenset(place.unloaded)

    def number(self, ticket: Ticket) -> int | None:
        """The number by which the owner knows a waiting ticket."""
        return self._by_id.get(ticket.id)

    def open(self, ticket: Ticket, holder: TicketHolder, queue: OwnerQueue) -> int:
        """Keep a ticket until the owner answers. Returns its number."""
        number = next(self.numbers)
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
        """A ticket is granted, of the engine's ``generation``."""
        found = self._open.get(ticket)
        if found is None:  # the request has left meanwhile, and has told the owner so
            return
        self.close(found.ticket)
        if (backlog := found.queue.backlog).waiting:  # as in ``HostQueue``
            backlog.granted(found.queue.now())
        found.queue.began(found.ticket.replica, ticket, generation)
        if not found.holder.granted():
            found.queue.served(found.ticket.replica)

    def refused(self, ticket: int, error: SentError, joined_load: bool) -> None:
        """A ticket is refused. ``joined_load``: for a load that the request had joined."""
        found = self._open.get(ticket)
        if found is not None:
            self.close(found.ticket)
            found.holder.refused(error.received(), joined_load)

    def put_positions(self, places: list[tuple[int, Phase, int]]) -> None:
        """Take the places of the waiting tickets."""
        self.positions = {ticket: (phase, position) for ticket, phase, position in places}

    def waiting_in(self, queue: OwnerQueue) -> Sequence[Waiting]:
        """The tickets that wait in ``queue``, as far as the owner has told their places."""
        found = []
        for number, (phase, position) in self.positions.items():
            waits = self._open.get(number)
            if waits is not None and waits.queue is queue:
                found.append(Waiting(ticket=waits.ticket, phase=phase, position=position))
        return found

    def recall(self, backend: str) -> None:
        """Requests wait for a backend: give the places there back that are kept for later requests."""
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
        self.now = loop_clock(asyncio.get_running_loop())
        self.unloaded: frozenset[str] = frozenset()
        self._queues = queues
        self._owner = owner
        self._served: dict[str, list[int]] = {}
        self._generations: dict[str, int] = {}
        self._kept: dict[str, list[int]] = {}
        self._recalled_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        kept = self._kept.get(ticket.replica)
        if kept:
            self._serve(ticket.replica, kept.pop())
            if not holder.granted():
                self.served(ticket.replica)
            return
        self._owner.send(TicketDesk.submit, self._queues.open(ticket, holder, self), self.name, ticket)

    async def reserve(self, replica: str) -> None:
        line, priority = self.place(replica)
        if not self._kept.get(line):  # whoever asks may leave, but the answer must not be lost
            await asyncio.shield(self._queues.tasks.start(self._reserve(line, priority)))

    async def _reserve(self, line: str, priority: int) -> None:
        number = next(self._queues.numbers)
        ticket = Ticket(id=f"reserve/{number}", replica=line, priority=priority, arrived=self.now())
        generation = await self._owner.ask(TicketDesk.ask_slot, number, self.name, ticket)
        if generation is not None:
            self._generations[line] = generation
            self._keep(line, number)

    def cancel(self, ticket: Ticket) -> None:
        number = self._queues.close(ticket)
        if number is not None:
            self._owner.send(TicketDesk.cancel, number)

    def began(self, replica: str, number: int, generation: int) -> None:
        """Note the grant of a ticket."""
        self._generations[replica] = generation
        self._serve(replica, number)

    def recall(self) -> None:
        """Give the places back that are kept for later requests, and keep none for a while."""
        self._recalled_at = self.now()
        self._give_back()

    def served(self, replica: str, caller: str | None = None, keep_alive: float | None = None) -> None:
        self._owner.send(TicketDesk.served, self._end(replica), caller, keep_alive)
        self._queues.changed()

    def connection_lost(self, replica: str, generation: int) -> None:
        self._owner.send(TicketDesk.lost, self._end(replica), generation)
        self._queues.changed()

    def found_unloaded(self, replica: str, generation: int) -> None:
        self._owner.send(TicketDesk.found_unloaded, self.name, replica, generation)

    def generation(self, replica: str) -> int:
        return self._generations.get(replica, 0)

    async def has_exited(self, replica: str, generation: int) -> bool:
        try:
            return await self._owner.ask(TicketDesk.ask_exited, self.name, replica, generation)
        except RequestError:  # the owner is gone, and with it the engines' news
            return False

    def is_unloaded(self, replica: str) -> bool:
        return replica in self.unloaded

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
                self._owner.send(TicketDesk.served, number, None, None)

    def _end(self, replica: str) -> int:
        """The number of any request that ``replica`` serves: they are alike to the owner."""
        return self._served[replica].pop()


class OwnerLineQueue(OwnerQueue):
    """The queue of a backend that runs elsewhere: all its models share one line."""

    launches: ClassVar[bool] = False

    def place(self, replica: str) -> tuple[str, int]:
        return self.name, self._queues.priorities().get(replica.removesuffix(f"@{self.name}"), 0)

    def served(self, replica: str, caller: str | None = None, keep_alive: float | None = None) -> None:
        """Keep the place for the next request, if nobody waits: it need not ask the owner then."""
        if self.now() - self._recalled_at < _UNKEPT_S:
            super().served(replica, caller, keep_alive)
            return
        self._keep(replica, self._end(replica))
        self._queues.changed()


class _WorkerTicket:
    """One ticket, until the request has ended. Implements ``TicketHolder``."""

    def __init__(self, number: int, ticket: Ticket, queue: RequestQueue, desk: TicketDesk) -> None:
        self.ticket = ticket
        self.queue = queue
        self.is_granted = False
        self._number = number
        self._desk = desk

    def granted(self) -> bool:
        self.is_granted = self._desk.grant(self._number, self.queue.generation(self.ticket.replica))
        return self.is_granted

    def refused(self, error: Exception, joined_load: bool = False) -> None:
        self._desk.refuse(self._number, error, joined_load=joined_load)


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
        self._asks: dict[int, asyncio.Future[int | None]] = {}
        self._closed = False

    def ticket(self, number: int | None) -> Ticket | None:
        """The ticket that the worker knows by a number, while it waits or its request is served."""
        found = self._tickets.get(number) if number is not None else None
        return found.ticket if found is not None else None

    def submit(self, number: int, backend: str, ticket: Ticket) -> None:
        """Ask for the replica of ``ticket``; ``granted`` or ``refused`` follows. Times are on the monotonic clock."""
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
        """The engine's generation if it is granted, at once or as soon as workers have given back what they keep."""
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
            self._send(OwnerQueues.granted, number, generation)
        return True

    def refuse(self, number: int, error: Exception, *, joined_load: bool) -> None:
        """Tell the worker of a refusal."""
        self._tickets.pop(number, None)
        if not self._answered(number, None):
            self._send(OwnerQueues.refused, number, SentError.of(error), joined_load)

    def cancel(self, ticket: int) -> None:
        """Withdraw a ticket. One whose grant is on its way to the worker is given back."""
        held = self._tickets.pop(ticket, None)
        if held is not None:
            self._give_back(held)

    def served(self, ticket: int, caller: str | None, keep_alive: float | None) -> None:
        """Note the end of a granted request of ``caller``. Tickets of a replica are alike: it may be another's."""
        held = self._tickets.pop(ticket, None)
        if held is not None:
            held.queue.served(held.ticket.replica, caller, keep_alive)

    def lost(self, ticket: int, generation: int) -> None:
        """Note that the engine of this ``generation`` broke a granted request off."""
        held = self._tickets.pop(ticket, None)
        if held is not None:
            held.queue.connection_lost(held.ticket.replica, generation)

    def found_unloaded(self, backend: str, replica: str, generation: int) -> None:
        """Note that the server of a granted request says that its model is not loaded."""
        queue = self._queues.get(backend)
        if queue is not None:
            queue.found_unloaded(replica, generation)

    async def ask_exited(self, backend: str, replica: str, generation: int) -> bool:
        """Whether the engine of a granted request, which broke it off, has exited."""
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
