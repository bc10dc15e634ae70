"""Counts of the gaps between outputs."""

from __future__ import annotations


def count_gap(gaps: dict[int, int], seconds: float, count: int) -> None:
    """Add ``count`` gaps of so many ``seconds`` to ``gaps``, by microseconds."""
    micros = seconds * 1e6
    whole = int(micros)
    rest = micros - whole
    if rest > 0.5 or (rest == 0.5 and whole % 2):  # what round() does, which takes a hundred times as long
        whole += 1
    gaps[whole] = gaps.get(whole, 0) + count
