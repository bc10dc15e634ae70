"""Linear interpolation and extrapolation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def linear(axis: Sequence[float], values: Sequence[float], at: float) -> float:
    """The value at ``at``, on the line through the two nearest points; beyond the ends, on the last line.

    ``axis`` ascends and has at least two points.
    """
    left, share = _place(axis, at)
    return values[left] + share * (values[left + 1] - values[left])


def bilinear(
    rows: Sequence[float], columns: Sequence[float], table: Sequence[Sequence[float]], row: float, column: float
) -> float:
    """Interpolate in a table as ``linear`` does: first along the columns, then between the rows."""
    top, share = _place(rows, row)
    above, below = (linear(columns, table[at], column) for at in (top, top + 1))
    return above + share * (below - above)


def _place(axis: Sequence[float], at: float) -> tuple[int, float]:
    left = min(max(bisect_right(axis, at) - 1, 0), len(axis) - 2)
    return left, (at - axis[left]) / (axis[left + 1] - axis[left])
