"""Interpolation between measured points."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence


class Grid:
    """Measured values by two coordinates. ``value`` interpolates between the four nearest points.

    As in Llumnix, nothing is extrapolated: beyond the measured points, and where one of the four is missing, the value
    is infinite. At the origin it is 0.
    """

    def __init__(self, points: Mapping[tuple[float, float], float]) -> None:
        self._points = points
        self._rows = sorted({row for row, _ in points})
        self._columns = sorted({column for _, column in points})

    def value(self, row: float, column: float) -> float:
        """The value at a place: bilinear, linear where a coordinate was measured, exact where both were."""
        if row == column == 0:
            return 0.0
        rows, columns = _around(self._rows, row), _around(self._columns, column)
        if rows is None or columns is None:
            return float("inf")
        (top, bottom), (left, right) = rows, columns
        down, across = _share(top, bottom, row), _share(left, right, column)
        above = self._between((top, left), (top, right), across)
        below = self._between((bottom, left), (bottom, right), across)
        return above if not down else above + down * (below - above)

    def _between(self, start: tuple[float, float], end: tuple[float, float], share: float) -> float:
        first, last = self._points.get(start), self._points.get(end)
        if first is None or last is None:
            return float("inf")
        return first + share * (last - first)


def _around(axis: Sequence[float], at: float) -> tuple[float, float] | None:
    """The nearest points on both sides of ``at``; ``None`` if a side has none."""
    below, above = bisect_right(axis, at) - 1, bisect_left(axis, at)
    return None if below < 0 or above == len(axis) else (axis[below], axis[above])


def _share(start: float, end: float, at: float) -> float:
    return 0.0 if start == end else (at - start) / (end - start)
