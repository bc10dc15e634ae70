"""The waiting room: requests that wait for a model, until a replica that suits them has a free slot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, Protocol

from enginehouse.domain.errors import QueueFull, QueueTimeout, RequestError
from enginehouse.domain.replica import Candidate, ReplicaState, Route
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.interfaces.observers import Observer
from enginehouse.interfaces.schedulers import SchedulingLimits, Waiting
from enginehouse.scheduling.flow_control import Backlog, missed, unfit
from enginehouse.scheduling.ticket_queue import ReplicaLine, TicketQueue, WaitingTicket

_MOST_PLANNED: Final = 64
"""The most requests of one model that are planned together, and the fewest if it has many candidates."""
_FEWEST_PLANNED: Final = 8
_MOST_LOOKS: Final = 1024
"""The most candidates that one plan looks at for one model: an event may not hold up the event loop."""


class WaitingRequest(Protocol):
    """A request, as the room sees it. The room calls one of the last three methods, once, when it has left."""

    def look(self) -> Route | None:
        """Where the request would go now; ``None`` if no replica of its model is left. Raises ``RequestError``."""

    def bind(self, route: Route) -> None:
        """Go along ``route``, which ``look`` returned just now."""

    def start_over(self) -> None:
        """Find another model, or fail: no replica of this one is left."""

    def refuse(self, error: RequestError) -> None:
        """Fail with ``error``."""


class OtherRooms(Protocol):
    """The waiting rooms of other processes, whose requests want the same slots. False if nobody waits there."""

    def __bool__(self) -> bool: ...

    def waiting_for(self, model: str) -> int:
        """How many of their requests wait for ``model``."""

    def show(self, firsts: Sequence[WaitingTicket]) -> None:
        """Show the others the first request that waits for each model, in turn."""

    def come_first(self, firsts: Sequence[WaitingTicket], overdue: float) -> bool:
        """Whether one of the others has the turn for a model of ``firsts``; then the room is asked again soon."""


class WaitingCounts(Mapping[str, int]):
    """Adds ``others`` to the counts of this process, ``own``.

    A model that only others' requests wait for has its count, but is not listed: their names are not known here.
    """

    def __init__(self, own: Mapping[str, int]) -> None:
        self._own = own
        self.others: OtherRooms | None = None

    def __getitem__(self, model: str) -> int:
        count = self._own.get(model, 0) + (self.others.waiting_for(model) if self.others else 0)
        if not count:
            raise KeyError(model)
        return count

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def __bool__(self) -> bool:
        return bool(self._own) or bool(self.others)


class WaitingRoom(Observer):
    """Plans who goes where: at each arrival, whenever a slot may be free, and every now and then.

    The requests of a plan look for a replica one after the other, in their order: by priority, then by arrival. Each
    counts as pending where it would go, so the next one sees it there. Whoever finds a free slot leaves the room and is
    bound to that replica; the others stay unbound. A request that has waited for ``max_wait`` is bound to the replica
    that it would wait for, whose host protects it from newer requests.

    A request has a ``Ticket`` here, whose ``replica`` is its model.

    - ``models``: those that requests wait for, with the number of requests. It stays the same object.
    - ``counts``: the same, with the requests of ``others``.
    - ``candidates`` returns the replicas of a model.
    - ``backlogs`` returns those of the queues at these replicas; a request of the model counts in each of them.
    - ``now``: the clock of hosts' queues, in seconds.
    - ``changed`` is called when requests come or go.
    """

    def __init__(
        self,
        candidates: Callable[[str], Sequence[Candidate]],
        backlogs: Callable[[str], Set[Backlog]],
        now: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.models: dict[str, int] = {}
        self.counts = WaitingCounts(self.models)
        self._candidates = candidates
        self._backlogs_now = backlogs
        self.now = now
        self._tell = changed
        self._queue = TicketQueue()
        self._guests: dict[Ticket, WaitingRequest] = {}
        self._backlogs: dict[str, Set[Backlog]] = {}
        self._planning = False
        self.configure(SchedulingLimits(), {})

    def queue_changed(self) -> None:
        """Plan after each event of a queue, such as the end of a request."""
        if self._guests:
            self._plan_in_turn()

    def __len__(self) -> int:
        return len(self._guests)

    def join_others(self, others: OtherRooms) -> None:
        """Take turns with the rooms of other processes from now on."""
        self.counts.others = others

    def configure(self, limits: SchedulingLimits, priorities: Mapping[str, int]) -> None:
        """Use the configured ``limits`` and ``priorities`` of models, from now on."""
        self._limits = limits
        self._priorities = priorities
        self._queue.rank(self._priority)

    def join(self, ticket: Ticket, request: WaitingRequest) -> None:
        """Let ``request`` wait. It may be bound before this returns.

        Raises ``QueueFull`` if ``max_queue`` requests wait in each backlog of its model.
        """
        most, backlogs = self._limits.max_queue, self._recount(ticket.replica)
        if 0 < most <= min((each.waiting for each in backlogs), default=0):
            error = QueueFull(f"{most} requests wait already (scheduling.max_queue): try again later")
            error.retry_after = min(each.retry_after() for each in backlogs)
            raise error
        self._queue.add(self._queue.place(ticket, self._priority(ticket)))
        self._guests[ticket] = request
        self._backlogs[ticket.replica] = backlogs
        self.models[ticket.replica] = self.models.get(ticket.replica, 0) + 1
        for each in backlogs:
            each.add()
        self._changed()
        self._plan_in_turn()
        if ticket in self._guests:
            self._control_flow(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Forget a request whose client left, or that was cancelled. Does nothing if it has left the room already."""
        if self._remove(ticket) is not None:
            self._changed()

    def plan(self, *, thoroughly: bool = False) -> None:
        """Bind the requests whose turn it is now.

        Models without a free slot at a ready replica are passed over, unless ``thoroughly``.
        """
        if self._planning or not self._guests:
            return
        self._planning = True
        try:
            while self._carry_out(self._decide(thoroughly)):
                thoroughly = False
        finally:
            self._planning = False

    def tick(self) -> None:
        """Refuse requests that have waited for ``queue_timeout``, and plan the others. Call it often."""
        if not self._guests:
            return
        for model in self.models:
            self._recount(model)
        if timeout := self._limits.queue_timeout:
            before = self.now() - timeout
            late = [each.ticket for each in self._queue.tickets() if each.age[0] <= before]
            for ticket in late:
                text = f"No replica of '{ticket.replica}' could take the request within scheduling.queue_timeout"
                self._refuse(ticket, QueueTimeout(f"{text} ({timeout:g} s)"))
        for ticket, error in missed([each.ticket for each in self._queue.tickets()], self.now()):
            self._refuse(ticket, error)
        self.plan(thoroughly=True)

    def waiting(self) -> Mapping[Ticket, Waiting]:
        """Every request in the room; its position is its place among those that wait for the same model."""
        overdue = self._overdue()
        return {
            each.ticket: Waiting(ticket=each.ticket, phase=Phase.QUEUED, position=position)
            for line in self._queue.lines()
            for position, each in enumerate(line.in_turn(overdue))
        }

    # --- the rooms of other processes

    def _changed(self) -> None:
        if (others := self.counts.others) is not None:
            others.show(self._firsts())
        self._tell()

    def _plan_in_turn(self) -> None:
        others = self.counts.others
        if others is None or not others.come_first(self._firsts(), self._overdue()):
            self.plan()

    def _firsts(self) -> Sequence[WaitingTicket]:
        overdue = self._overdue()
        return [next(line.in_turn(overdue)) for line in self._queue.lines_in_turn(overdue)]

    # --- decisions: nothing here has an effect

    def _decide(self, thoroughly: bool) -> Sequence[tuple[Ticket, Route | RequestError | None]]:
        """What becomes of requests now: a route with a free slot, an error, or ``None`` if their model is lost."""
        overdue = self._overdue()
        decisions: list[tuple[Ticket, Route | RequestError | None]] = []
        planned: list[Route] = []
        lines = [line for line in self._queue.lines() if thoroughly or self._has_free_slot(line.replica)]
        try:
            for waiting in self._in_turn(lines, overdue):
                ticket = waiting.ticket
                if not thoroughly and not self._has_free_slot(ticket.replica):
                    continue
                found = self._look(ticket)
                if isinstance(found, Route):
                    found.chosen.load.begin()
                    planned.append(found)
                    if found.waits and waiting.age[0] > overdue:
                        continue
                decisions.append((ticket, found))
        finally:
            for route in planned:
                route.chosen.load.end()
        return decisions

    def _in_turn(self, lines: Sequence[ReplicaLine], overdue: float) -> Iterator[WaitingTicket]:
        """The first requests of each of the lines, in their order."""
        if len(lines) == 1:
            return islice(lines[0].in_turn(overdue), self._most_planned(lines[0].replica))
        first = [each for line in lines for each in islice(line.in_turn(overdue), self._most_planned(line.replica))]
        return iter(sorted(first, key=lambda waiting: waiting.turn(overdue)))

    def _most_planned(self, model: str) -> int:
        return max(_FEWEST_PLANNED, min(_MOST_PLANNED, _MOST_LOOKS // max(1, len(self._candidates(model)))))

    def _has_free_slot(self, model: str) -> bool:
        return any(each.state is ReplicaState.READY and each.load.free != 0 for each in self._candidates(model))

    def _look(self, ticket: Ticket) -> Route | RequestError | None:
        try:
            return self._guests[ticket].look()
        except RequestError as error:
            return error.with_traceback(None)

    def _priority(self, ticket: Ticket) -> int:
        return ticket.priority + self._priorities.get(ticket.replica, 0)

    def _overdue(self) -> float:
        return self.now() - self._limits.max_wait if self._limits.max_wait else float("-inf")

    # --- outcomes

    def _carry_out(self, decisions: Sequence[tuple[Ticket, Route | RequestError | None]]) -> bool:
        """Let requests leave the room; whether any did. What they do may end others that were to leave too."""
        for ticket, found in decisions:
            guest = self._remove(ticket)
            if guest is None:
                continue
            if found is None:
                guest.start_over()
            elif isinstance(found, Route):
                guest.bind(found)
            else:
                guest.refuse(found)
        if decisions:
            self._changed()
        return bool(decisions)

    def _control_flow(self, ticket: Ticket) -> None:
        """Refuse ``ticket``, which has come to wait, or another one, if that would take too long."""
        line = self._queue.line(ticket.replica)
        if line is None or not (self._limits.shed_after or ticket.deadline < math.inf):
            return
        waiting = [each.ticket for each in line.in_turn(self._overdue())]
        refusal = unfit(ticket, waiting, self._backlogs[ticket.replica], self._limits.shed_after, self.now())
        if refusal is not None:
            self._refuse(*refusal)

    def _refuse(self, ticket: Ticket, error: RequestError) -> None:
        guest = self._remove(ticket)
        if guest is not None:
            guest.refuse(error)
            self._changed()

    def _remove(self, ticket: Ticket) -> WaitingRequest | None:
        guest, model = self._guests.pop(ticket, None), ticket.replica
        if guest is not None:
            self._queue.remove(ticket)
            for each in self._backlogs[model]:
                each.take()
            self.models[model] -= 1
            if not self.models[model]:
                del self.models[model], self._backlogs[model]
        return guest

    def _recount(self, model: str) -> Set[Backlog]:
        """Count the requests of ``model`` in its backlogs of now: a queue may have come, gone or changed its host."""
        now, requests = self._backlogs_now(model), self.models.get(model, 0)
        if requests and (before := self._backlogs[model]) != now:
            gone, new = before - now, now - before
            for _ in range(requests):
                for each in gone:
                    each.take()
                for each in new:
                    each.add()
            self._backlogs[model] = now
        return now
