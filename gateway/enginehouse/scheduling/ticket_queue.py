"""The tickets that wait on a host, by replica and in their order."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import chain, takewhile
from operator import attrgetter
from typing import Final, NamedTuple

from enginehouse.domain.ticket import Ticket

TicketRank = tuple[int, float, float, float, int]
"""The order of service: the higher priority, then the earlier deadline, the lower turn and the earlier arrival.

One that comes back after it lost its place has its old arrival.
"""
TicketAge = tuple[float, int]
"""The time of arrival in seconds, and a running number. A smaller age means an older ticket."""
_NO_BARRIER: Final[TicketAge] = (math.inf, 0)
_rank: Final = attrgetter("rank")
_age: Final = attrgetter("age")


class WaitingTicket(NamedTuple):
    """A ticket with its position in the order of service."""

    ticket: Ticket
    rank: TicketRank
    age: TicketAge

    def turn(self, overdue: float) -> tuple[bool, TicketAge | TicketRank]:
        """The sort key of service: tickets that arrived by ``overdue`` (seconds) by age, then the others by rank."""
        return (False, self.age) if self.age[0] <= overdue else (True, self.rank)


class ReplicaLine:
    """The tickets that wait for one replica. A line in a ``TicketQueue`` is never empty.

    ``cramped`` means that the last load failed for lack of memory: the next one evicts every dispensable replica.
    ``claims_from``: until then its tickets hold up nobody, because there was no place for the replica.
    """

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self.cramped = False
        self.claims_from = 0.0
        self._by_rank: list[WaitingTicket] = []
        self._by_age: list[WaitingTicket] = []

    def __len__(self) -> int:
        return len(self._by_age)

    @property
    def oldest(self) -> WaitingTicket:
        """The ticket that has waited longest."""
        return self._by_age[0]

    def next_in_turn(self, overdue: float, barrier: TicketAge = _NO_BARRIER) -> WaitingTicket | None:
        """The first of ``in_turn`` that is older than ``barrier``; ``None`` if there is none."""
        if not self._by_age or self._by_age[0].age >= barrier:
            return None
        if self._by_age[0].age[0] <= overdue:
            return self._by_age[0]
        for waiting in self._by_rank:
            if waiting.age < barrier:
                return waiting
        return None

    def turn(self, overdue: float) -> tuple[bool, TicketAge | TicketRank]:
        """The ``WaitingTicket.turn`` of its next ticket."""
        oldest = self._by_age[0]
        return (oldest if oldest.age[0] <= overdue else self._by_rank[0]).turn(overdue)

    def in_turn(self, overdue: float) -> Iterator[WaitingTicket]:
        """The tickets in the order of ``WaitingTicket.turn``."""
        if not self._by_age or self._by_age[0].age[0] > overdue:
            return iter(self._by_rank)
        if self._by_age[-1].age[0] <= overdue:
            return iter(self._by_age)
        late = takewhile(lambda waiting: waiting.age[0] <= overdue, self._by_age)
        return chain(late, (waiting for waiting in self._by_rank if waiting.age[0] > overdue))

    def add(self, waiting: WaitingTicket) -> None:
        """Insert a ticket."""
        insort(self._by_rank, waiting, key=_rank)
        insort(self._by_age, waiting, key=_age)

    def clear(self) -> None:
        """Remove every ticket."""
        self._by_rank.clear()
        self._by_age.clear()

    def remove(self, waiting: WaitingTicket) -> bool:
        """Remove a ticket of this line. Returns whether others are left."""
        del self._by_rank[bisect_left(self._by_rank, waiting.rank, key=_rank)]
        del self._by_age[bisect_left(self._by_age, waiting.age, key=_age)]
        return bool(self._by_age)


class TicketQueue:
    """The waiting tickets of a host, one line per replica. ``waiting``: the places of all tickets. Live; only read it.

    The cost of an operation grows with the number of lines, hardly with the number of tickets.
    """

    def __init__(self) -> None:
        self.waiting: dict[Ticket, WaitingTicket] = {}
        self._lines: dict[str, ReplicaLine] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def place(self, ticket: Ticket, priority: int) -> WaitingTicket:
        """Return ``ticket`` with its place, behind every ticket of its rank. ``add`` then adds it to the queue."""
        self._arrivals += 1
        age = ticket.arrived, self._arrivals
        return WaitingTicket(ticket, (-priority, ticket.deadline, ticket.turn, *age), age)

    def rank(self, priority: Callable[[Ticket], int]) -> None:
        """Sort every line again, by other priorities."""
        tickets = self.tickets()
        for line in self._lines.values():
            line.clear()
        for waiting in tickets:
            self.add(waiting._replace(rank=(-priority(waiting.ticket), *waiting.rank[1:])))

    def line(self, replica: str) -> ReplicaLine | None:
        """The line of ``replica``, ``None`` if no ticket waits for it."""
        return self._lines.get(replica)

    def lines(self) -> list[ReplicaLine]:
        """Every line."""
        return list(self._lines.values())

    def lines_in_turn(self, overdue: float) -> list[ReplicaLine]:
        """Every line, sorted by the ``WaitingTicket.turn`` of its first ticket."""
        return sorted(self._lines.values(), key=lambda line: line.turn(overdue))

    def tickets(self) -> list[WaitingTicket]:
        """Every ticket, in the order of arrival."""
        return list(self.waiting.values())

    def add(self, waiting: WaitingTicket) -> ReplicaLine:
        """Add a ticket to the line of its replica and return that line."""
        replica = waiting.ticket.replica
        line = self._lines.get(replica)
        if line is None:
            line = self._lines[replica] = ReplicaLine(replica)
        line.add(waiting)
        self.waiting[waiting.ticket] = waiting
        return line

    def remove(self, ticket: Ticket) -> WaitingTicket | None:
        """Remove a ticket and return its place; ``None`` if it does not wait."""
        waiting = self.waiting.pop(ticket, None)
        if waiting is not None and not self._lines[ticket.replica].remove(waiting):
            del self._lines[ticket.replica]
        return waiting
