"""The clocks that rescheduling reads."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time
from typing import NamedTuple


class Clocks(NamedTuple):
    """``seconds``: since any moment. ``epoch``: since the Unix epoch, or in simulations since their beginning."""

    seconds: Callable[[], float] = perf_counter
    epoch: Callable[[], float] = time

    def epoch_ms(self) -> int:
        """The time in milliseconds, as views have it."""
        return int(self.epoch() * 1000)


REAL_CLOCKS = Clocks()
