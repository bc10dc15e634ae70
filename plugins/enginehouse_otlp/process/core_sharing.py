"""Lets the gateway have the core that the exporter shares with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter

_LONG_S = 0.002
_WORK_S = 0.002


def _yield_core() -> None:
    if sys.platform == "linux":
        os.sched_yield()


class CoreSharing:
    """Yields the core between pieces of work, so that the gateway waits for none but the current one.

    Linux lets a process finish its slice of some milliseconds before another one that wakes up, however low its
    priority. But a process that yields loses the rest of its share too: while the gateway takes all of the core, each
    yield lasts about 25 ms. So the exporter works for ``_WORK_S`` after a yield that lasted ``_LONG_S`` or more.
    """

    def __init__(self, yield_core: Callable[[], None] = _yield_core, clock: Callable[[], float] = perf_counter) -> None:
        self._yield_core = yield_core
        self._clock = clock
        self._works_until = 0.0

    def yield_core(self) -> None:
        """Let the gateway run now, if it wants to."""
        began = self._clock()
        if began < self._works_until:
            return
        self._yield_core()
        ended = self._clock()
        if ended - began >= _LONG_S:
            self._works_until = ended + _WORK_S
