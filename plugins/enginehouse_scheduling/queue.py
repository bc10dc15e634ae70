"""Who waits, for which replica, and whose turn it is."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

from enginehouse import Ticket

Rank = tuple[int, int]
"""The order of service: the higher priority first, then as they came."""
Age = tuple[float, int]
"""When a request came, in seconds, and as which one; smaller is older."""


class Waiter(NamedTuple):
    """A ticket and its place."""

    ticket: Ticket
    rank: Rank
    age: Age


def _rank(waiter: Waiter) -> Rank:
    return waiter.rank


def _age(waiter: Waiter) -> Age:
    return waiter.age


class Line:
    """Those who wait for one replica; never empty while it is in the queue.

    ``cramped``: it was loaded for them in vain, for lack of memory, and is to be loaded with as much as there can be.
    """

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self.cramped = False
        self._by_rank: list[Waiter] = []
        self._by_age: list[Waiter] = []

    def __len__(self) -> int:
        return len(self._by_age)

    @property
    def oldest(self) -> Waiter:
        """Who has waited for the longest time."""
        return self._by_age[0]

    def in_turn(self, overdue: float) -> Iterator[Waiter]:
        """Everybody: who came by ``overdue`` (seconds) as they came, then the others by rank."""
        yield from takewhile(lambda waiter: waiter.age[0] <= overdue, self._by_age)
        yield from (waiter for waiter in self._by_rank if waiter.age[0] > overdue)

    def add(self, waiter: Waiter) -> None:
        """Let ``waiter`` wait here."""
        insort(self._by_rank, waiter, key=_rank)
        insort(self._by_age, waiter, key=_age)

    def clear(self) -> None:
        """Let everybody go, for a moment."""
        self._by_rank.clear()
        self._by_age.clear()

    def remove(self, waiter: Waiter) -> None:
        """Let ``waiter`` go, who waits here."""
        del self._by_rank[bisect_left(self._by_rank, waiter.rank, key=_rank)]
        del self._by_age[bisect_left(self._by_age, waiter.age, key=_age)]


class Queue:
    """Every line of a host. What an event costs depends on the lines, hardly on how many wait in them."""

    def __init__(self) -> None:
        self._waiters: dict[Ticket, Waiter] = {}
        self._lines: dict[str, Line] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def waiter(self, ticket: Ticket, priority: int) -> Waiter:
        """A place for ``ticket``, behind everybody of its priority."""
        self._arrivals += 1
        return Waiter(ticket, (-priority, self._arrivals), (ticket.arrived, self._arrivals))

    def rank(self, priority: Callable[[Ticket], int]) -> None:
        """Have everybody wait by another ``priority``, and as they came."""
        waiters = self.waiters()
        for line in self._lines.values():
            line.clear()
        for waiter in waiters:
            self.add(waiter._replace(rank=(-priority(waiter.ticket), waiter.rank[1])))

    def line(self, replica: str) -> Line | None:
        """Those who wait for ``replica``, if anybody does."""
        return self._lines.get(replica)

    def lines(self) -> list[Line]:
        """All lines."""
        return list(self._lines.values())

    def lines_in_turn(self, overdue: float) -> list[Line]:
        """All lines, in the order of the first in each; who came by ``overdue`` (seconds) goes before the others."""
        return sorted(self._lines.values(), key=lambda line: turn(next(line.in_turn(overdue)), overdue))

    def waiters(self) -> list[Waiter]:
        """Everybody, as they came."""
        return list(self._waiters.values())

    def add(self, waiter: Waiter) -> Line:
        """Let ``waiter`` wait in its replica's line, which is returned."""
        replica = waiter.ticket.replica
        line = self._lines.setdefault(replica, Line(replica))
        line.add(waiter)
        self._waiters[waiter.ticket] = waiter
        return line

    def remove(self, ticket: Ticket) -> Waiter | None:
        """Let ``ticket`` go; ``None`` if it does not wait."""
        waiter = self._waiters.pop(ticket, None)
        if waiter is not None:
            line = self._lines[ticket.replica]
            line.remove(waiter)
            if not len(line):
                del self._lines[ticket.replica]
        return waiter


def turn(waiter: Waiter, overdue: float) -> tuple[bool, Age | Rank]:
    """Sorts waiters of any line: who came by ``overdue`` (seconds) as they came, then the others by rank."""
    return (False, waiter.age) if waiter.age[0] <= overdue else (True, waiter.rank)
