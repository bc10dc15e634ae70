"""The values of the last buckets of time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from math import nan
from typing import Final, NamedTuple

_NOTHING: Final = nan


class SeriesKey(NamedTuple):
    """What a value is about: a ``model``, a ``backend``, a ``gpu``, or, with two empty texts, the whole gateway."""

    by: str
    name: str


WHOLE: Final = SeriesKey("", "")


class BucketRing:
    """The values of the last ``size`` buckets of ``step`` seconds, four bytes each, by metric and key.

    Buckets are numbered: number ``n`` holds the time from ``n * step`` to ``(n + 1) * step`` since the Unix epoch.
    """

    def __init__(self, step: int, size: int) -> None:
        self.step = step
        self.size = size
        self.newest = 0
        """The number of the newest bucket; 0 before the first."""
        self._values: dict[tuple[str, SeriesKey], array[float]] = {}

    def begin(self, number: int) -> None:
        """Begin the bucket ``number``. Those that were left out have no values. An earlier one starts over."""
        first = self.newest + 1 if number > self.newest else number
        for skipped in range(max(first, number - self.size + 1), number + 1):
            for values in self._values.values():
                values[skipped % self.size] = _NOTHING
        self.newest = number

    def put(self, metric: str, key: SeriesKey, value: float) -> None:
        """Set a value of the newest bucket."""
        values = self._values.get((metric, key))
        if values is None:
            values = self._values[metric, key] = array("f", [_NOTHING]) * self.size
        values[self.newest % self.size] = value

    def forget(self, key: SeriesKey) -> None:
        """Remove all values of ``key``."""
        for metric, kept in list(self._values):
            if kept == key:
                del self._values[metric, kept]

    def keys(self, metric: str) -> Iterator[SeriesKey]:
        """The keys that have values of ``metric``."""
        return (key for each, key in self._values if each == metric)

    def values(self, metric: str, key: SeriesKey, first: int) -> list[float | None]:
        """The values from bucket ``first`` to the newest; ``None`` where there is none."""
        kept = self._values.get((metric, key))
        numbers = range(max(first, self.newest - self.size + 1), self.newest + 1)
        if kept is None:
            return [None] * len(numbers)
        return [None if (value := kept[number % self.size]) != value else value for number in numbers]
