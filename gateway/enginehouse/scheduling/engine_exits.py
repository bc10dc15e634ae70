"""The exits of the engines of one host, for requests that were broken off."""

from __future__ import annotations

import asyncio
from collections import Counter

_NOTICE_S = 2.0
"""The gateway notices an exit this much later than the broken connections: the engine first frees its memory."""


class EngineExits:
    """Counts the exits of each replica's engine, so that a broken request can find out whether its engine exited."""

    def __init__(self) -> None:
        self._generations: Counter[str] = Counter()
        self._next: dict[str, asyncio.Future[None]] = {}

    def note(self, replica: str) -> None:
        """Note that the engine of ``replica`` exited."""
        self._generations[replica] += 1
        if (exit := self._next.pop(replica, None)) is not None:
            exit.set_result(None)

    def generation(self, replica: str) -> int:
        """The number of exits of ``replica``'s engine."""
        return self._generations[replica]

    async def wait_for(self, replica: str, generation: int) -> None:
        """Wait a moment for the exit of the engine with this number."""
        if self._generations[replica] == generation:
            exit = self._next.setdefault(replica, asyncio.get_running_loop().create_future())
            await asyncio.wait({exit}, timeout=_NOTICE_S)
