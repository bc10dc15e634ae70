"""Keeps the gateway's figures over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from enginehouse.pages import ModelTotals, PageFacts
from enginehouse_operations.series.amounts import Amounts
from enginehouse_operations.series.bucket_ring import WHOLE, BucketRing, SeriesKey

_SECONDS: Final = 15 * 60
_MINUTES: Final = 24 * 60
_MOST_NAMES: Final = 28
"""With all metrics in all buckets, so many models and as many backends take 7.4 MB."""
_IDLE_S: Final = _SECONDS
_OTHER: Final = "other"
_NOTHING: Final = (*Amounts().figures(1),)
"""The figures of a second in which no request ended."""


class SeriesStore:
    """Rings of one-second buckets of 15 minutes, and of one-minute buckets of 24 hours.

    ``sample`` is called once a second and reads counters that are kept anyway: a request costs nothing. At most 28
    models and 28 backends have series of their own, and each takes the place of one that was idle for 15 minutes;
    others are summed up as ``other``.
    """

    def __init__(self) -> None:
        self.seconds = BucketRing(1, _SECONDS)
        self.minutes = BucketRing(60, _MINUTES)
        self._now = 0.0
        self._counted: dict[tuple[str, str], ModelTotals] = {}
        self._this_minute: dict[SeriesKey, Amounts] = {}
        self._gauge_sums: dict[tuple[str, SeriesKey], tuple[float, int]] = {}
        self._active: dict[SeriesKey, float] = {}
        """When each key with a series of its own last had a request or a value."""
        self._full_until: dict[str, float] = {}
        """Until then, no further model, or backend, gets a series of its own."""

    @property
    def rings(self) -> Collection[BucketRing]:
        """The finer one first."""
        return self.seconds, self.minutes

    def sample(self, facts: PageFacts) -> None:
        """Close the second that ends now, and with the last one of a minute, the minute."""
        self._now = facts.epoch()
        number = round(self._now) - 1  # timers ring a little before or after the second
        if self.seconds.newest and number // 60 != self.seconds.newest // 60:
            self._close_minute(self.seconds.newest // 60)
        self.seconds.begin(number)
        ended = self._ended_since(facts.totals())
        for key in {*ended, *self._active, WHOLE}:
            amounts = ended.get(key)
            for metric, value in _NOTHING if amounts is None else amounts.figures(1):
                self.seconds.put(metric, key, value)
            if amounts is not None:
                self._this_minute.setdefault(key, Amounts()).add(amounts)
        for (metric, key), value in self._gauges_now(facts.gauges()).items():
            self.seconds.put(metric, key, value)
            total, count = self._gauge_sums.get((metric, key), (0.0, 0))
            self._gauge_sums[metric, key] = total + value, count + 1

    def _close_minute(self, number: int) -> None:
        self.minutes.begin(number)
        for key in {*self._this_minute, *self._active, WHOLE}:
            for metric, value in self._this_minute.get(key, Amounts()).figures(60):
                self.minutes.put(metric, key, value)
        for (metric, key), (total, count) in self._gauge_sums.items():
            self.minutes.put(metric, key, total / count)
        self._this_minute.clear()
        self._gauge_sums.clear()

    def _ended_since(self, totals: Iterable[ModelTotals]) -> Mapping[SeriesKey, Amounts]:
        """What has ended since the last call."""
        ended: defaultdict[SeriesKey, Amounts] = defaultdict(Amounts)
        for now in totals:
            before = self._counted.get(now[:2])
            if now == before:
                continue
            self._counted[now[:2]] = now
            new = Amounts()
            new.add(now)
            if before is not None:
                new.add(before, -1)
            ended[WHOLE].add(new)
            if now.backend:
                ended[self._named("model", now.model)].add(new)
                ended[self._named("backend", now.backend)].add(new)
        return ended

    def _gauges_now(self, gauges: Iterable[tuple[str, str, str, float]]) -> Mapping[tuple[str, SeriesKey], float]:
        """The gauges of now. Names without a series of their own are one; an active one without a queue has none."""
        found: dict[tuple[str, SeriesKey], float] = {}
        for metric, by, name, value in gauges:
            key = self._named(by, name) if by in ("model", "backend") else SeriesKey(by, name)
            before = found.get((metric, key), 0.0)
            found[metric, key] = before + value if metric == "queue" else max(before, value)
        for key in (*self._active, WHOLE):
            found.setdefault(("queue", key), 0.0)
        return found

    def _named(self, by: str, name: str) -> SeriesKey:
        """The key of a model or a backend that is active now."""
        key, now = SeriesKey(by, name), self._now
        if key not in self._active:
            if now < self._full_until.get(by, now):
                return SeriesKey(by, _OTHER)
            others = [each for each in self._active if each.by == by]
            if len(others) >= _MOST_NAMES:
                idlest = min(others, key=self._active.__getitem__)
                self._full_until[by] = self._active[idlest] + _IDLE_S
                if now < self._full_until[by]:
                    return SeriesKey(by, _OTHER)
                self._drop(idlest)
        self._active[key] = now
        return key

    def _drop(self, key: SeriesKey) -> None:
        del self._active[key]
        self._this_minute.pop(key, None)
        self._gauge_sums = {each: sums for each, sums in self._gauge_sums.items() if each[1] != key}
        for ring in self.rings:
            ring.forget(key)
