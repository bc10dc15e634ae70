"""The tickets of one host that have no answer yet, and how fast they become fewer."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.collaborators import TicketHolder

_REMEMBERED: Final = 32
_LONGEST_S: Final = 600


class OpenTickets:
    """Keeps each ticket with its holder until it is granted, refused or withdrawn. Iteration allows changes.

    ``backlog`` counts them.
    """

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._by_id: dict[str, tuple[Ticket, TicketHolder]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Ticket]:
        return iter([ticket for ticket, _ in self._by_id.values()])

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket.id in self._by_id

    def add(self, ticket: Ticket, holder: TicketHolder) -> None:
        """Keep ``ticket`` until ``take``."""
        self._by_id[ticket.id] = (ticket, holder)
        self._backlog.add()

    def take(self, ticket: Ticket) -> TicketHolder | None:
        """Drop ``ticket``. Returns its holder; ``None`` if it has its answer already."""
        _, holder = self._by_id.pop(ticket.id, (None, None))
        if holder is not None:
            self._backlog.take()
        return holder


class Backlog:
    """Counts what waits in all queues that share it, and measures the time from one grant to the next."""

    def __init__(self) -> None:
        self.waiting = 0
        self._grants = 0
        self._pace_s = 0.0
        self._last: float | None = None

    @property
    def rate(self) -> float:
        """Grants in a second while requests wait; 0 while that is unknown."""
        return 1 / self._pace_s if self._pace_s else 0.0

    def add(self) -> None:
        """Count a request in."""
        if not self.waiting:  # how long nothing was asked for says nothing of the pace
            self._last = None
        self.waiting += 1

    def take(self) -> None:
        """Count a request out."""
        self.waiting -= 1

    def granted(self, now: float) -> None:
        """Note that a request was granted at ``now``. Only grants while others wait show how fast the host is."""
        if not self.waiting:
            return
        if self._last is not None:
            self._grants = min(self._grants + 1, _REMEMBERED)
            self._pace_s += (now - self._last - self._pace_s) / self._grants
        self._last = now

    def retry_after(self) -> int:
        """The seconds after which everything that waits now will probably be served; 1 while that is unknown."""
        return max(1, min(ceil(self.waiting * self._pace_s), _LONGEST_S))
