"""Counts and logs swaps."""

from __future__ import annotations

import logging
from collections.abc import Callable

from enginehouse.domain.errors import LoadCancelled
from enginehouse.domain.ticket import SwapDone
from enginehouse.interfaces.exporters import SwapRecord
from enginehouse.interfaces.observers import Observer
from enginehouse.telemetry.counters import Counters

_log = logging.getLogger(__name__)


def _outcome(error: Exception | None) -> str:
    if error is None:
        return "ready"
    return "cancelled" if isinstance(error, LoadCancelled) else "failed"


class SwapReports(Observer):
    """Logs one line for each swap and counts it."""

    def __init__(self, counters: Counters, now: Callable[[], float]) -> None:
        self._now = now
        self._counters = counters
        self._begun: dict[str, tuple[float, tuple[str, ...]]] = {}

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        self._begun[target] = (self._now(), evict)

    def swap_done(self, done: SwapDone) -> None:
        ended = self._now()
        began, evict = self._begun.pop(done.target, (ended, ()))
        duration = ended - began
        outcome = _outcome(done.error)
        self._counters.last_swaps.append(SwapRecord(done.target, evict, began, ended, outcome))
        self._counters.swaps[done.target, outcome].observe(duration)
        for replica in evict:
            self._counters.evictions[replica] += 1
        evicted = ", ".join(evict) or "nothing"
        _log.info("Swap of %s: %s after %.2f s, evicted %s", done.target, outcome, duration, evicted)
