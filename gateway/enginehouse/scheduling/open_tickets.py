"""The tickets of one host that have no answer yet."""

from __future__ import annotations

from collections.abc import Iterator

from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.collaborators import TicketHolder


class OpenTickets:
    """Keeps each ticket with its holder until it is granted, refused or withdrawn. Iteration allows changes."""

    def __init__(self) -> None:
        self._by_id: dict[str, tuple[Ticket, TicketHolder]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Ticket]:
        return iter([ticket for ticket, _ in self._by_id.values()])

    def add(self, ticket: Ticket, holder: TicketHolder) -> None:
        """Keep ``ticket`` until ``take``."""
        self._by_id[ticket.id] = (ticket, holder)

    def take(self, ticket: Ticket) -> TicketHolder | None:
        """Drop ``ticket``. Returns its holder; ``None`` if it has its answer already."""
        _, holder = self._by_id.pop(ticket.id, (None, None))
        return holder
