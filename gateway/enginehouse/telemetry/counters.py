"""Counters and histograms of finished requests: cheap to update, rendered only for a scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from enginehouse.domain.errors import shortened
from enginehouse.telemetry.record import SwapRecord

_LAST_SWAPS = 64

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Histogram:
    """The number of times observed in each bucket, by upper ``bounds``; the last bucket has none."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class Series:
    """Counters and histograms of one model on one backend. ``requests``: by status."""

    __slots__ = ("duration", "first_byte", "requests")

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)
        self.first_byte = Histogram()
        self.duration = Histogram()


class Counters:
    """Everything counted since the gateway started.

    ``refused`` counts requests that reached no engine, by error code. ``retries`` counts retried requests, by the
    backend that failed. ``stale`` counts requests sent anew because the backend had closed a kept connection.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.swaps: defaultdict[tuple[str, str], Histogram] = defaultdict(Histogram)
        """The durations of swaps, by target and outcome: ``ready`` or ``failed``."""
        self.last_swaps: deque[SwapRecord] = deque(maxlen=_LAST_SWAPS)
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.stale: defaultdict[str, int] = defaultdict(int)

        self.continuations: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        """Streams that went on at another engine, by its backend, the reason and the outcome."""
        self.gaps: defaultdict[str, Histogram] = defaultdict(Histogram)
        """How long clients waited for the next event of such a stream, by the reason."""

    def continued(self, backend: str, reason: str, outcome: str, gap: float) -> None:
        """Count a stream that goes on at ``backend`` after ``gap`` seconds."""
        self.continuations[backend, reason, outcome] += 1
        self.gaps[reason].observe(gap)

    def series(self, backend: str, model: str) -> Series:
        """The series of ``model`` on ``backend``; a new one if there is none yet."""
        key = (backend, model)
        found = self._series.get(key)
        if found is None:
            found = self._series.setdefault((backend, shortened(model)), Series())
        return found

    def __iter__(self) -> Iterator[tuple[str, str, Series]]:
        """Yield ``(backend, model, series)``."""
        return ((backend, model, series) for (backend, model), series in self._series.items())
