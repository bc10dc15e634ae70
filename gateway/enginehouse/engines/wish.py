"""A wish to have a replica loaded, in its turn among the requests."""

from __future__ import annotations

import asyncio
import itertools

from enginehouse.domain.errors import ReplicaGone
from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.host import Host

_wishes = itertools.count(1)


async def load(queue: Host, replica: str) -> None:
    """Have ``replica`` made ready, in its turn, and wait for that. Raises ``RequestError`` when it does not work."""
    try:
        await _load(queue, replica)
    except ReplicaGone:
        await _load(queue, replica)


async def _load(queue: Host, replica: str) -> None:
    wish = _Wish()
    ticket = Ticket(id=f"load/{next(_wishes)}", replica=replica, arrived=queue.now())
    queue.submit(ticket, wish)
    try:
        await wish.outcome
    finally:
        if wish.held:
            queue.served(replica)
        else:
            queue.cancel(ticket)


class _Wish:
    """Waits for a replica that somebody wants loaded, not for a request."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held = False

    def granted(self) -> bool:
        if self.outcome.done():
            return False
        self.held = True
        self.outcome.set_result(None)
        return True

    def refused(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
