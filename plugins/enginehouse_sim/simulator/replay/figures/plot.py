"""Replays of one trace as a picture, of a few hundred points for each figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.replay.figures.record import Moment, Record, Slo

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 400
_STRETCHES = 60
"""The approximate number of separate values in a line over time."""
_COLOURS = ("#0f6cbd", "#d1590f", "#1f8a5b", "#a8478f", "#c79a00", "#4fb0d8", "#5b5b66", "#8f5b34")
"""Distinguishable for colour-blind readers, and in this order also in grey."""
_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "grid.color": "#e7e9ee",
    "legend.frameon": False,
    "svg.hashsalt": "enginehouse",
}

Curve = list[tuple[float, float]]
"""Points of a cumulative distribution: milliseconds, and the percentage of durations up to that."""


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """``ttft``, ``tpot`` and ``latency`` are distributions; ``moments`` are samples over time."""

    ttft: Curve
    tpot: Curve
    latency: Curve
    moments: list[Moment]
    slo: Slo | None


def curves_of(record: Record) -> Curves:
    """The curves of a complete record."""
    return Curves(
        ttft=_distribution(record.times_to_first),
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


def draw(names: Sequence[str], curves: Sequence[Curves], path: Path) -> None:
    """Draw replays side by side into ``path``; its suffix decides the format. Raises ``ConfigError``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    with pyplot.rc_context(_STYLE):
        figure, grid = pyplot.subplots(2, 3, figsize=(13, 7.4), layout="constrained")
        axes = list(grid.flat)
        try:
            for at, (name, title) in enumerate(
                (("ttft", "Time to first token"), ("tpot", "Mean time between tokens"), ("latency", "Whole answer"))
            ):
                _draw_distribution(axes[at], title, curves, name)
            _over_time(axes[3], "Requests that wait", "requests", curves, lambda each: each.waiting + each.queued)
            _over_time(axes[4], "At the busiest engine", "requests", curves, lambda each: each.busiest)
            _over_time(axes[5], "KV cache in use", "% of blocks", curves, lambda each: 100 * each.kv_use)
            if len(names) > 1:
                lines = [Line2D([], [], color=_colour(at), linewidth=3) for at in range(len(names))]
                figure.legend(lines, names, loc="outside upper left", ncols=min(4, len(names)))
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The picture cannot be written: {error}", key="--plot") from error
        finally:
            pyplot.close(figure)


def _draw_distribution(axes: Axes, title: str, curves: Sequence[Curves], name: str) -> None:
    """Draw cumulative distributions of the figure, and mark its objective."""
    shown: list[Curve] = [getattr(each, name) for each in curves]
    for at, curve in enumerate(shown):
        axes.step([ms for ms, _ in curve], [share for _, share in curve], where="post", color=_colour(at))
    slo = curves[0].slo
    seconds = getattr(slo, name) if slo is not None else None
    if seconds is not None:
        axes.axvline(seconds * 1000, color="black", linewidth=1, linestyle="--", label="objective")
        axes.legend()
    axes.set(title=title, xlabel="ms", ylabel="% of requests", ylim=(0, 101))
    if all(curve and curve[0][0] > 0 for curve in shown):
        axes.set_xscale("log")


def _over_time(
    axes: Axes, title: str, unit: str, curves: Sequence[Curves], value_of: Callable[[Moment], float]
) -> None:
    """Draw a figure over time, smoothed if there are many moments."""
    for at, each in enumerate(curves):
        moments = each.moments
        values = _smoothed([value_of(moment) for moment in moments], max(1, len(moments) // _STRETCHES))
        axes.plot([moment.time for moment in moments], values, color=_colour(at), linewidth=1.4)
    axes.set(title=title, xlabel="virtual time, s", ylabel=unit, ylim=(0, None))


def _smoothed(values: Sequence[float], width: int) -> list[float]:
    """For each value, the mean of the last ``width`` values."""
    sums = [0.0, *accumulate(values)]
    return [(sums[at] - sums[max(0, at - width)]) / min(at, width) for at in range(1, len(sums))]


def _colour(at: int) -> str:
    return _COLOURS[at % len(_COLOURS)]
