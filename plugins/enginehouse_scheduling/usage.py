"""What a scheduler remembers of a host's replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Usage:
    """Requests in flight, the order of last use, and since when replicas are loaded."""

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._last_use: dict[str, int] = {}
        self._loaded_at: dict[str, float] = {}
        self._uses = 0

    def in_flight(self, replica: str) -> int:
        """Requests that were granted and have not ended."""
        return self._in_flight[replica]

    def begin(self, replica: str) -> None:
        """A request was granted."""
        self._in_flight[replica] += 1
        self.used(replica)

    def end(self, replica: str) -> None:
        """A request has ended."""
        self._in_flight[replica] = max(0, self._in_flight[replica] - 1)
        self.used(replica)

    def used(self, replica: str) -> None:
        """``replica`` is the most recently used one now."""
        self._uses += 1
        self._last_use[replica] = self._uses

    def least_recent_first(self, replicas: Iterable[str]) -> list[str]:
        """``replicas`` by their last use; before them, in the order given, those that were never used."""
        return sorted(replicas, key=lambda replica: self._last_use.get(replica, 0))

    def loaded(self, replica: str, now: float) -> None:
        """``replica`` got ready at ``now``, in seconds."""
        self._loaded_at[replica] = now

    def loaded_after(self, replica: str, time: float) -> bool:
        """Whether ``replica`` got ready later than ``time``, in seconds."""
        return self._loaded_at.get(replica, time) > time
