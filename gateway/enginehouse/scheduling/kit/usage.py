"""The use of a host's replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class ReplicaUsage:
    """Counts requests in flight and remembers when each replica was last used and loaded. Times are in seconds."""

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._last_use: dict[str, int] = {}
        self._loaded_at: dict[str, float] = {}
        self._uses = 0

    def in_flight(self, replica: str) -> int:
        """The number of granted requests that have not ended."""
        return self._in_flight[replica]

    def begin(self, replica: str) -> None:
        """Count a granted request."""
        self._in_flight[replica] += 1
        self.used(replica)

    def end(self, replica: str) -> None:
        """Count the end of a granted request."""
        self._in_flight[replica] = max(0, self._in_flight[replica] - 1)
        self.used(replica)

    def used(self, replica: str) -> None:
        """Make ``replica`` the most recently used one."""
        self._uses += 1
        self._last_use[replica] = self._uses

    def least_recent_first(self, replicas: Iterable[str]) -> list[str]:
        """Sort by last use. Replicas that were never used come first, in the order given."""
        return sorted(replicas, key=lambda replica: self._last_use.get(replica, 0))

    def loaded(self, replica: str, now: float) -> None:
        """Remember that ``replica`` became ready at ``now``."""
        self._loaded_at[replica] = now

    def loaded_after(self, replica: str, time: float) -> bool:
        """Whether ``replica`` became ready later than ``time``."""
        return self._loaded_at.get(replica, time) > time
