"""Time as the server sees it; tests bring their own clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock in seconds."""

    def now(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class LoopClock:
    """Real time, finer than the clock of uvloop's event loop, which counts milliseconds."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
