"""Finds the engines that have been idle for their ttl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse.domain.replica import ReplicaState


class IdleReplicas:
    """Remembers when each replica was last used. Times are seconds on any clock."""

    def __init__(self) -> None:
        self._last_used: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    def used(self, replica: str, now: float, keep_alive: float | None = None) -> None:
        """Note the end of a request. ``keep_alive``: the seconds that take the place of the ttl until the next one."""
        self._last_used[replica] = now
        self._asked.pop(replica, None)
        if keep_alive is not None:
            self._asked[replica] = keep_alive

    def due(
        self, states: Mapping[str, ReplicaState], in_flight: Mapping[str, int], ttls: Mapping[str, float], now: float
    ) -> Sequence[str]:
        """The replicas to put to sleep or to stop. A busy or newly ready replica counts as used at ``now``.

        ``ttls``: the idle seconds after which each is due, 0 for never. Pinned replicas have a ttl too: a pin only
        protects from eviction. Those that are due are forgotten, for an owner may load one again before the next call.
        """
        limits = {**{replica: ttl for replica, ttl in ttls.items() if ttl > 0}, **self._asked}
        ready = [replica for replica in limits if states.get(replica) is ReplicaState.READY]
        self._last_used = {each: now if in_flight.get(each) else self._last_used.get(each, now) for each in ready}
        due = [replica for replica, used in self._last_used.items() if now - used >= limits[replica]]
        for replica in due:
            del self._last_used[replica]
        self._asked = {replica: asked for replica, asked in self._asked.items() if replica in self._last_used}
        return due
