"""The time that the gateway reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, perf_counter, time
from typing import Final


class Clock:
    """Tells the time in seconds. ``now``: since any moment, and never set back. ``epoch``: since the Unix epoch.

    Whatever depends on time gets a clock handed in, so that the same code runs in virtual time.
    """

    __slots__ = ("epoch", "now")

    def __init__(self, now: Callable[[], float] = perf_counter, epoch: Callable[[], float] = time) -> None:
        self.now = now
        self.epoch = epoch

    def epoch_ms(self) -> int:
        """The time of day in milliseconds."""
        return int(self.epoch() * 1000)


SYSTEM_CLOCK: Final = Clock()
"""The clocks of this machine."""


def loop_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The clock of ``loop``. That of asyncio's own loops is ``monotonic``, in a method of Python code."""
    is_usual = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return monotonic if is_usual else loop.time
