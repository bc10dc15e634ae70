"""Moves the average latencies of backends without recent requests towards those of the others. Compiled."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Final

from enginehouse.domain.replica import Load

_TURNS: Final = 4
"""The averages are aged when every backend could have answered so often."""
_MISSED_TURNS: Final = 3
_BENEFIT_MS: Final = 20.0
"""So much lower than the others' the average ends, so that the backend is tried where all else is equal."""
_AGE_S: Final = 60.0
"""After so many turns that a backend missed, or so long, its average has moved by 63 % of its way to the others'."""


class StaleAverages:
    """Ages averages in rounds of four answers for each backend. ``left``: the answers until the round ends.

    A backend that answers within a round keeps its average. One that does not may have been slow once, and strategies
    avoid it since: its average moves towards those of its model's other backends until it gets a request.
    """

    def __init__(self, now: float) -> None:
        self.left = _TURNS
        self._aged_at = now

    def age(self, rows: Sequence[Sequence[Load]], backends: int, now: float) -> None:
        """Age the stale averages of ``rows``, the backends of each model, and begin a new round."""
        passed = max(0.0, now - self._aged_at)
        aged: set[int] = set()
        for row in rows:
            stale = [load for load in row if not load.answers and id(load) not in aged]
            if stale and len(stale) < len(row):
                _age(stale, row, passed)
                aged.update(map(id, stale))
        for row in rows:
            for load in row:
                load.answers = 0
        self.left, self._aged_at = max(1, backends) * _TURNS, now


def _age(stale: Sequence[Load], row: Sequence[Load], passed: float) -> None:
    answers = sum(load.answers for load in row)
    if not answers:
        return
    others = max(0.0, sum(load.avg_latency_ms * load.answers for load in row) / answers - _BENEFIT_MS)
    share = 1 - exp(-answers / len(row) / _MISSED_TURNS - passed / _AGE_S)
    for load in stale:
        if load.latency_weight < 1:
            load.age(others, share)
