"""A replay as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from enginehouse_sim.replay.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(record: Record, path: Path) -> None:
    """Draw latencies and the batch over time into ``path``; its ending says in which format.

    Raises ``ImportError`` without matplotlib, and ``ValueError`` for an ending it does not know.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained")
    (first, gaps), (batches, cost) = axes
    firsts = [request.first_token - request.arrival for request in record.requests if request.first_token is not None]
    _distribution(first, "time to first token", firsts)
    _distribution(gaps, "inter-token latency", record.gaps)
    batches.plot(list(accumulate(record.step_seconds)), record.batches, linewidth=0.7)
    batches.set(title="requests in a step", xlabel="virtual time, s", ylabel="requests")
    cost.plot(record.batches, [wall * 1e6 for wall in record.step_wall], ".", markersize=2, alpha=0.4)
    cost.set(title="real cost of a step", xlabel="requests", ylabel="µs", yscale="log")
    try:
        figure.savefig(path)
    finally:
        pyplot.close(figure)


def _distribution(axes: Axes, title: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    axes.plot([each * 1000 for each in ordered], [(n + 1) / len(ordered) for n in range(len(ordered))])
    axes.set(title=title, xlabel="ms", ylabel="share of all", xscale="log" if ordered and ordered[0] > 0 else "linear")
