"""The granted requests of one host that have not ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress


class GrantedRequests:
    """Counts the requests of each replica, and lets a drain wait for their end."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._drained: dict[str, asyncio.Event] = {}

    def of(self, replica: str) -> int:
        """The number of requests of ``replica``."""
        return self._counts[replica]

    def begin(self, replica: str) -> None:
        """Count a request in."""
        self._counts[replica] += 1

    def end(self, replica: str) -> None:
        """Count a request out. Call ``wake_drain`` when the scheduler knows."""
        self._counts[replica] -= 1

    def wake_drain(self, replica: str) -> None:
        """End the wait for ``replica``, if it has no request left."""
        if not self._counts[replica] and (drained := self._drained.pop(replica, None)) is not None:
            drained.set()

    async def drain(self, replica: str, within: float) -> None:
        """Wait until ``replica`` has no request left, at most ``within`` seconds."""
        if self._counts[replica]:
            drained = self._drained.setdefault(replica, asyncio.Event())
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(drained.wait(), within)
