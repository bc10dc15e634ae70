"""Finds the engines that have been idle for their ttl."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from enginehouse.domain.replica import ReplicaState


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
