"""A request's place at the scheduler of a host."""

from __future__ import annotations

import itertools
from typing import Protocol

from enginehouse.domain.errors import LoadFailed, RequestError
from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.host import Host

_ids = itertools.count(1)


class Traveller(Protocol):
    """Whoever waits for the place: an attempt."""

    def depart(self) -> None:
        """The replica is ready for the request."""

    def turned_away(self, error: RequestError) -> None:
        """The request will not be served there."""


class Place:
    """Waits for a replica that the gateway launches, then holds it until ``leave``.

    ``arrived``: since when, in seconds on the host's clock; now if left out. ``in_doubt``: the engine broke off, and
    nobody knows whether it has ended.
    """

    __slots__ = ("_held", "_host", "_left", "_life", "_traveller", "in_doubt", "ticket")

    def __init__(
        self,
        traveller: Traveller,
        host: Host,
        request_id: bytes,
        replica: str,
        priority: int,
        arrived: float | None = None,
    ) -> None:
        self._traveller = traveller
        self._host = host
        self._held = False
        self._left = False
        self._life = 0
        self.in_doubt = False
        # clients may send the same request id twice
        self.ticket = Ticket(
            id=f"{request_id.decode()}/{next(_ids)}",
            replica=replica,
            priority=priority,
            arrived=host.now() if arrived is None else arrived,
        )

    def take(self) -> None:
        """Queue up; the traveller is told, perhaps at once."""
        self._host.submit(self.ticket, self)

    def granted(self) -> bool:
        """Let the traveller go."""
        self._held = True
        self._life = self._host.life(self.ticket.replica)
        self._traveller.depart()
        return True

    def refused(self, error: Exception) -> None:
        """Tell the traveller why."""
        self._traveller.turned_away(error if isinstance(error, RequestError) else LoadFailed(str(error)))

    async def engine_ends(self) -> bool:
        """Whether the engine, which broke off, has ended by itself or is just about to."""
        ends = await self._host.ends(self.ticket.replica, self._life)
        self.in_doubt = False
        return ends

    def leave(self) -> None:
        """Give the place back, or wait no more."""
        if self._left:
            return
        self._left = True
        if not self._held:
            self._host.cancel(self.ticket)
        elif self.in_doubt:
            self._host.broke(self.ticket.replica, self._life)
        else:
            self._host.served(self.ticket.replica)
