"""Finds the engines that have been idle for their ttl."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from enginehouse.domain.replica import ReplicaState


class IdleReplicas:
    """Remembers when each replica was last used. Times are seconds on any clock.

    ``ttls``: the idle seconds after which a replica is due, 0 for never. Pinned replicas have a ttl too: a pin only
    protects from eviction.
    """

    def __init__(self, ttls: Mapping[str, float]) -> None:
        self._last_used: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self.reconfigure(ttls)

    def reconfigure(self, ttls: Mapping[str, float]) -> None:
        """Use other times. The last use of a replica stays known."""
        self._ttls = {replica: ttl for replica, ttl in ttls.items() if ttl > 0}
        self._last_used = {replica: used for replica, used in self._last_used.items() if replica in self._ttls}

    def used(self, replica: str, now: float, keep_alive: float | None = None) -> None:
        """Note the end of a request. ``keep_alive``: the seconds that take the place of the ttl until the next one."""
        if keep_alive is not None:
            self._asked[replica] = keep_alive
        else:
            self._asked.pop(replica, None)
        if replica in self._ttls or keep_alive is not None:
            self._last_used[replica] = now

    def due(self, states: Mapping[str, ReplicaState], in_flight: Mapping[str, int], now: float) -> Sequence[str]:
        """The replicas to put to sleep or to stop. A busy or newly ready replica counts as used at ``now``.

        Those that are due are forgotten, for an owner may load one again before the next call.
        """
        for replica in {**self._ttls, **self._asked}:
            if states.get(replica) is not ReplicaState.READY:
                self._last_used.pop(replica, None)
                self._asked.pop(replica, None)
            elif in_flight.get(replica):
                self._last_used[replica] = now
            else:
                self._last_used.setdefault(replica, now)
        due = [replica for replica, used in self._last_used.items() if now - used >= self._longest(replica)]
        for replica in due:
            del self._last_used[replica]
            self._asked.pop(replica, None)
        return due

    def _longest(self, replica: str) -> float:
        asked = self._asked.get(replica)
        return self._ttls.get(replica, math.inf) if asked is None else asked
