"""Time as the simulated engine sees it; a test brings its own."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a clock that never goes back."""

    def now(self) -> float:
        """The time."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class LoopClock:
    """Real time, as the event loop waits for it; finer than the loop's own, which some count in milliseconds."""

    def now(self) -> float:
        """The time of the machine's monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the loop."""
        await asyncio.sleep(seconds)
