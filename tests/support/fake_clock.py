"""A clock for code that takes one as a parameter."""

from __future__ import annotations

import asyncio
import heapq


class FakeClock:
    """A clock that only ``advance`` moves."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, id(woken), woken))
        await woken

    def stall(self, seconds: float) -> None:
        """Let ``seconds`` pass without a turn for any task."""
        self._now += seconds

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, waking every sleeper at its own time."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end + 1e-9:
            due, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._now = max(self._now, end)


class StoppedClock:
    """A clock that a test calls and sets: ``clock.now = 5.0``."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)
