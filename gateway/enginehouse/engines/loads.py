"""Loads that no request asks for: those of operators and of ``preload``."""

from __future__ import annotations

import asyncio
import itertools
import logging

from enginehouse.domain.errors import ReplicaLost, RequestError
from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.host_queue import HostQueue

_log = logging.getLogger(__name__)
_ids = itertools.count(1)


async def load(queue: HostQueue, replica: str) -> None:
    """Load ``replica`` in its turn and wait until it is ready. Raises ``RequestError`` if that fails.

    For a ready replica this returns at once, even if its engine has no room for a request.
    """
    if queue.replica_state(replica) is ReplicaState.READY:
        return
    try:
        await _load(queue, replica)
    except ReplicaLost:  # requests were to look for other places, and this load has no other
        await _load(queue, replica)


async def _load(queue: HostQueue, replica: str) -> None:
    request = _LoadRequest()
    ticket = Ticket(id=f"load/{next(_ids)}", replica=replica, arrived=queue.now())
    queue.submit(ticket, request)
    try:
        await request.outcome
    finally:
        if request.held:
            queue.served(replica)
        else:
            queue.cancel(ticket)
        del request  # a failure refers to this frame, and the request to the failure


async def preload(queue: HostQueue, replica: str) -> None:
    """``load``, with a failure logged instead of raised."""
    try:
        await load(queue, replica)
    except RequestError as error:
        _log.warning("%s could not be preloaded: %s", replica, error)


class _LoadRequest:
    """Holds the ticket of a load that serves no request."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held = False

    def granted(self) -> bool:
        if self.outcome.done():
            return False
        self.held = True
        self.outcome.set_result(None)
        return True

    def refused(self, error: Exception, joined_load: bool = False) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
