"""Counters and histograms of finished requests, cheap to write and rendered only when somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Histogram:
    """How often a time fell into each bucket; the last bucket is for what lies above all bounds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Series:
    """The figures of one model on one backend."""

    __slots__ = ("duration", "first_byte", "requests")

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)
        self.first_byte = Histogram()
        self.duration = Histogram()


class Figures:
    """What the gateway has counted since it started."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.retries: defaultdict[str, int] = defaultdict(int)

    def series(self, backend: str, model: str) -> Series:
        """The figures of ``model`` on ``backend``."""
        key = (backend, model)
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = Series()
        return found

    def __iter__(self) -> Iterator[tuple[str, str, Series]]:
        """Backend, model, figures."""
        return ((backend, model, series) for (backend, model), series in self._series.items())
