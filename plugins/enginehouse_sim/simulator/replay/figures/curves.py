"""The points of a replay's plots: a few hundred of each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from enginehouse_sim.simulator.replay.figures.record import Moment, Record
from enginehouse_sim.simulator.replay.figures.slo import Slo

_POINTS = 400

Curve = list[tuple[float, float]]
"""Points of a cumulative distribution: milliseconds, and the percentage of durations up to that."""


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """``ttft``, ``itl``, ``tpot`` and ``latency`` are distributions; ``moments`` are samples over time."""

    ttft: Curve
    itl: Curve
    tpot: Curve
    latency: Curve
    moments: list[Moment]
    slo: Slo | None


def curves_of(record: Record) -> Curves:
    """The curves of a complete record."""
    return Curves(
        ttft=_distribution(record.times_to_first),
        itl=_counted(record.gaps),
        tpot=_distribution(record.means),
        latency=_distribution(record.durations),
        moments=list(record.moments.samples),
        slo=record.slo,
    )


def _distribution(seconds: Sequence[float]) -> Curve:
    ordered = sorted(seconds)
    every = max(1, len(ordered) // _POINTS)
    points = [(ordered[n] * 1000, 100 * (n + 1) / len(ordered)) for n in range(0, len(ordered), every)]
    return [*points, (ordered[-1] * 1000, 100.0)] if ordered else []


def _counted(microseconds: Mapping[int, int]) -> Curve:
    total, passed, shown = sum(microseconds.values()), 0, -1.0
    points: Curve = []
    for duration, count in sorted(microseconds.items()):
        passed += count
        share = 100 * passed / total
        if share - shown >= 100 / _POINTS or passed == total:
            points.append((duration / 1000, share))
            shown = share
    return points
