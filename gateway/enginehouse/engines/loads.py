"""What no request asks for: loads of operators and of ``preload``, and the ends of idle engines."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

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


class _Use(NamedTuple):
    """The end of the last request of a replica: when, whose it was, and the idle seconds that it asked for.

    ``others``: the end of the last request of any other caller; ``None`` if there was none.
    """

    at: float
    caller: str | None = None
    keep_alive: float | None = None
    others: float | None = None

    def ends(self, ttl: float) -> float:
        """When the replica is due. What a caller asked for must not take it away from other callers."""
        idle = ttl or math.inf
        if self.keep_alive is None:
            return self.at + idle
        asked = self.at + self.keep_alive
        return asked if self.others is None else max(asked, self.others + idle)


class IdleReplicas:
    """Remembers the last uses of each replica. Times are seconds on any clock."""

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}

    def used(self, replica: str, now: float, caller: str | None = None, keep_alive: float | None = None) -> None:
        """Note the end of a request of ``caller``.

        ``keep_alive``: the seconds that take the place of the ttl until the next request, as far as this caller goes.
        """
        last = self._uses.get(replica)
        others = None if last is None else last.others if last.caller == caller else last.at
        self._uses[replica] = _Use(now, caller, keep_alive, others)

    def due(
        self,
        states: Mapping[str, ReplicaState],
        in_flight: Callable[[str], int],
        ttls: Mapping[str, float],
        now: float,
    ) -> Sequence[str]:
        """The replicas to put to sleep or to stop: ready ones that serve no request and have been idle long enough.

        A newly ready one counts as used at ``now``. ``in_flight``: the exact number of requests of a replica, which
        counts them from their grant to the call of ``used``. ``ttls``: the idle seconds after which each is due, 0 for
        never. Pinned replicas have a ttl too: a pin only protects from eviction. Those that are due are forgotten, for
        an owner may load one again before the next call.
        """
        ready = [replica for replica in ttls if states.get(replica) is ReplicaState.READY]
        self._uses = {replica: self._uses.get(replica) or _Use(now) for replica in ready}
        due = [each for each in ready if not in_flight(each) and self._uses[each].ends(ttls[each]) <= now]
        for replica in due:
            del self._uses[replica]
        return due
