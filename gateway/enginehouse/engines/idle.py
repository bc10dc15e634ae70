"""Which engines have had nothing to do for long enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse.domain.replica import ReplicaState


class IdleKeeper:
    """Remembers when each replica was last of use. Times are seconds on any clock.

    ``ttls``: after how many idle seconds a replica is due, 0 for never. A pinned replica has its ``ttl`` as well: it is
    never evicted for another one, which is something else.
    """

    def __init__(self, ttls: Mapping[str, float]) -> None:
        self._last_used: dict[str, float] = {}
        self.reconfigure(ttls)

    def reconfigure(self, ttls: Mapping[str, float]) -> None:
        """From now on these are the times, counted from the last use as before."""
        self._ttls = {replica: ttl for replica, ttl in ttls.items() if ttl > 0}
        self._last_used = {replica: used for replica, used in self._last_used.items() if replica in self._ttls}

    def used(self, replica: str, now: float) -> None:
        """A request of ``replica`` has ended."""
        if replica in self._ttls:
            self._last_used[replica] = now

    def due(self, states: Mapping[str, ReplicaState], in_flight: Mapping[str, int], now: float) -> Sequence[str]:
        """The replicas to be unloaded, to be asked now and then: what it sees busy, or newly ready, is in use now."""
        for replica in self._ttls:
            if states.get(replica) is not ReplicaState.READY:
                self._last_used.pop(replica, None)
            elif in_flight.get(replica):
                self._last_used[replica] = now
            else:
                self._last_used.setdefault(replica, now)
        return [replica for replica, used in self._last_used.items() if now - used >= self._ttls[replica]]
