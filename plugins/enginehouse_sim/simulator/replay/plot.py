"""A replay as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enginehouse_sim.simulator.replay.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR = "#b5462f"
_BINS = 300
_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "grid.color": "#e6e6e6",
    "svg.hashsalt": "enginehouse",
}


def plot(record: Record, path: Path) -> None:
    """Draw latencies, batch sizes and costs into ``path``; its suffix decides the format.

    Raises ``ImportError`` without matplotlib, and ``ValueError`` for an unknown suffix.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained")
        (first, gaps), (batches, cost) = axes
        _distribution(
            first,
            "Time to first token",
            [r.first_token - r.arrival for r in record.requests if r.first_token is not None],
        )
        _distribution(gaps, "Inter-token latency", record.gaps)
        _over_time(batches, record)
        _costs(cost, record)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        finally:
            pyplot.close(figure)


def _distribution(axes: Axes, title: str, seconds: Sequence[float]) -> None:
    """The cumulative distribution, as at most 400 points."""
    ordered = sorted(seconds)
    every = max(1, len(ordered) // 400)
    points = [(ordered[n] * 1000, 100 * (n + 1) / len(ordered)) for n in range(0, len(ordered), every)]
    if ordered:
        points.append((ordered[-1] * 1000, 100.0))
    axes.plot([ms for ms, _ in points], [share for _, share in points], color=_COLOUR)
    axes.set(title=title, xlabel="ms", ylabel="% of all")
    if ordered and ordered[0] > 0:
        axes.set_xscale("log")


def _over_time(axes: Axes, record: Record) -> None:
    """The mean of each of many equal intervals."""
    stretch = max(record.ended / _BINS, 1e-9)
    sums, counts = [0] * (_BINS + 1), [0] * (_BINS + 1)
    for end, batch in zip(record.step_ends, record.batches, strict=True):
        place = min(_BINS, int(end / stretch))
        sums[place] += batch
        counts[place] += 1
    means = [total / max(1, number) for total, number in zip(sums, counts, strict=True)]
    axes.step([place * stretch for place in range(_BINS + 1)], means, color=_COLOUR, linewidth=0.9)
    axes.set(title="Requests in a step", xlabel="virtual time, s", ylabel="requests")


def _costs(axes: Axes, record: Record) -> None:
    """The median cost of all steps with one batch size."""
    by_size: dict[int, list[float]] = {}
    for batch, wall in zip(record.batches, record.step_wall, strict=True):
        by_size.setdefault(batch, []).append(wall * 1e6)
    sizes = sorted(by_size)
    axes.plot(sizes, [sorted(by_size[size])[len(by_size[size]) // 2] for size in sizes], ".", color=_COLOUR)
    axes.set(title="Real cost of a step", xlabel="requests", ylabel="µs, median", ylim=(0, None))
