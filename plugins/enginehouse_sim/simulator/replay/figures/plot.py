"""Replays as plots, of a few hundred points for each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.replay.figures.record import Moment, Record, Slo
from enginehouse_sim.simulator.replay.figures.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


_COLOURS = ("#0f6cbd", "#d1590f", "#1f8a5b", "#a8478f", "#c79a00", "#4fb0d8", "#5b5b66", "#8f5b34")
"""Distinguishable for colour-blind readers, and in this order also in grey."""
_STRETCHES = 60
"""The approximate number of separate values in a line over time."""
_INK, _FAINT, _GRID = "#22262e", "#737a86", "#e7e9ee"
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#c3c7cf",
    "axes.grid": True,
    "axes.labelcolor": _FAINT,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.family": "DejaVu Sans",
    "grid.color": _GRID,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "enginehouse",
    "xtick.color": _FAINT,
    "xtick.labelsize": 8.5,
    "ytick.color": _FAINT,
    "ytick.labelsize": 8.5,
}


_SHARES: Mapping[str, Callable[[Report], float | None]] = {
    "within the objectives": lambda figures: figures.slo_attainment,
    "input from the cache": lambda figures: figures.cache_hit_ratio,
    "rejected": lambda figures: figures.rejected / max(1, figures.rejected + figures.requests),
}


class Shown(NamedTuple):
    """One replay to plot."""

    name: str
    figures: Report
    curves: Curves


def plot_one(shown: Shown, path: Path) -> None:
    """Draw one replay into ``path``; its suffix decides the format. Raises ``ConfigError``."""
    curves = [shown.curves]
    with _panels(path) as axes:
        _draw_distribution(axes[0], "Time to first token", curves, lambda each: each.ttft, "ttft")
        _draw_distribution(axes[1], "Time between tokens", curves, lambda each: each.itl)
        _draw_distribution(axes[2], "Whole answer", curves, lambda each: each.latency, "latency")
        _requests(axes[3], shown.curves.moments)
        _over_time(axes[4], "KV cache in use", "% of blocks", curves, lambda moment: 100 * moment.kv_use)
        axes[4].set_ylim(0, 100)
        _over_time(axes[5], "Preemptions so far", "requests", curves, lambda moment: moment.preemptions)


def plot_all(shown: Sequence[Shown], path: Path) -> None:
    """Draw replays of one trace side by side into ``path``. Raises ``ConfigError``."""
    curves = [each.curves for each in shown]
    with _panels(path, [each.name for each in shown]) as axes:
        _compare(axes, curves)
        if any(value_of(each.figures) for value_of in _SHARES.values() for each in shown):
            _shares(axes[5], shown)
        else:
            _over_time(axes[5], "Preemptions so far", "requests", curves, lambda moment: moment.preemptions)


def plot_curves(names: Sequence[str], curves: Sequence[Curves], path: Path) -> None:
    """Draw replays side by side into ``path``, without any share. Raises ``ConfigError``."""
    with _panels(path, names) as axes:
        _compare(axes, curves)
        _over_time(axes[5], "KV cache in use", "% of blocks", curves, lambda moment: 100 * moment.kv_use)


def plot_pairs(kinds: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> None:
    """Draw measured and predicted milliseconds of up to three kinds, and their errors. Raises ``ConfigError``."""
    with _panels(path) as axes:
        for at, (name, pairs) in enumerate(kinds.items()):
            measured = [ms for ms, _ in pairs]
            axes[at].plot([0, max(measured)], [0, max(measured)], color=_FAINT, linewidth=1)
            axes[at].scatter(measured, [ms for _, ms in pairs], s=14, color=_colour(at))
            axes[at].set(title=name, xlabel="measured, ms", ylabel="predicted, ms")
            off = sorted(100 * (predicted / ms - 1) for ms, predicted in pairs)
            shares = [100 * (n + 1) / len(off) for n in range(len(off))]
            axes[at + 3].step(off, shares, where="post", color=_colour(at))
            axes[at + 3].set(title=f"{name}: error", xlabel="%", ylabel="% of observations", ylim=(0, 101))


def _compare(axes: Sequence[Axes], curves: Sequence[Curves]) -> None:
    _draw_distribution(axes[0], "Time to first token", curves, lambda each: each.ttft, "ttft")
    _draw_distribution(axes[1], "Mean time between tokens", curves, lambda each: each.tpot, "tpot")
    _draw_distribution(axes[2], "Whole answer", curves, lambda each: each.latency, "latency")
    _over_time(axes[3], "Requests that wait", "requests", curves, lambda moment: moment.waiting + moment.queued)
    _over_time(axes[4], "At the busiest engine", "requests", curves, lambda moment: moment.busiest)


@contextmanager
def _panels(path: Path, names: Sequence[str] = ()) -> Iterator[Sequence[Axes]]:
    """Yield six panels, and save them at the end. ``names``: those of the lines, for a legend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    with pyplot.rc_context(_STYLE):
        spacing = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.02, hspace=0.04)
        figure, grid = pyplot.subplots(2, 3, figsize=(13, 7.4), layout=spacing)
        try:
            yield list(grid.flat)
            if names:
                lines = [Line2D([], [], color=_colour(at), linewidth=3) for at in range(len(names))]
                figure.legend(lines, names, loc="outside upper left", ncols=min(4, len(names)), fontsize=10)
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The picture cannot be written: {error}", key="--plot") from error
        finally:
            pyplot.close(figure)


def _draw_distribution(
    axes: Axes, title: str, curves: Sequence[Curves], curve_of: Callable[[Curves], Curve], limit: str = ""
) -> None:
    """Draw cumulative distributions. ``limit``: the field of ``Slo`` whose value to mark, if it has one."""
    from matplotlib.ticker import LogLocator

    lowest = 1.0
    for at, each in enumerate(curves):
        curve = curve_of(each)
        axes.step([ms for ms, _ in curve], [share for _, share in curve], where="post", color=_colour(at))
        lowest = min([lowest, *(ms for ms, _ in curve[:1])])
    slo = curves[0].slo
    seconds = getattr(slo, limit) if slo is not None and limit else None
    if seconds is not None:
        axes.axvline(seconds * 1000, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(seconds * 1000, 3, "objective", rotation=90, ha="right", va="bottom", color=_INK, fontsize=8.5)
    axes.set(title=title, ylabel="% of requests" if title != "Time between tokens" else "% of tokens", ylim=(0, 101))
    if lowest > 0 and any(curve_of(each) for each in curves):
        axes.set_xscale("log")
        left, right = axes.get_xlim()
        subs = (1, 2, 5) if right < 100 * left else (1,)  # more labels than these would overlap
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axes.xaxis.set_major_formatter(_duration)
        axes.xaxis.set_minor_formatter(lambda *_: "")


def _requests(axes: Axes, moments: Sequence[Moment]) -> None:
    times = [moment.time for moment in moments]
    for at, (name, values) in enumerate(
        (("running", [m.running for m in moments]), ("waiting", [m.waiting + m.queued for m in moments]))
    ):
        axes.step(times, values, where="post", color=_colour(at), linewidth=1.2, label=name)
    axes.set(title="Requests at the engine", xlabel="virtual time, s", ylabel="requests", ylim=(0, None))
    axes.legend(loc="upper right", ncols=2, fontsize=9)


def _over_time(
    axes: Axes, title: str, unit: str, curves: Sequence[Curves], value_of: Callable[[Moment], float]
) -> None:
    """Draw a figure over time, smoothed if there are many moments."""
    for at, each in enumerate(curves):
        moments = each.moments
        values = _smoothed([value_of(moment) for moment in moments], max(1, len(moments) // _STRETCHES))
        axes.plot([moment.time for moment in moments], values, color=_colour(at), linewidth=1.4)
    _, top = axes.get_ylim()
    axes.set(title=title, xlabel="virtual time, s", ylabel=unit, ylim=(0, max(1, top)))


def _smoothed(values: Sequence[float], width: int) -> list[float]:
    """For each value, the mean of the last ``width`` values."""
    sums = [0.0, *accumulate(values)]
    return [(sums[at] - sums[max(0, at - width)]) / min(at, width) for at in range(1, len(sums))]


def _shares(axes: Axes, shown: Sequence[Shown]) -> None:
    """Draw shares of requests and tokens as bars."""
    kept = {name: value for name, value in _SHARES.items() if any(value(each.figures) for each in shown)}
    height = 0.74 / max(1, len(shown))
    for row, value_of in enumerate(kept.values()):
        for at, each in enumerate(shown):
            share = 100 * (value_of(each.figures) or 0.0)
            place = row + (at - (len(shown) - 1) / 2) * height
            axes.barh(place, share, height * 0.86, color=_colour(at))
            axes.text(share + 1.2, place, f"{share:.1f}", va="center", fontsize=8.5, color=_INK)
    for row, name in enumerate(kept):
        axes.text(0, row - 0.44, name, va="bottom", fontsize=9, color=_FAINT)
    axes.set(title="Shares", xlabel="%", xlim=(0, 112), ylim=(len(kept) - 0.55, -0.75), yticks=())
    axes.grid(visible=False, axis="y")


def _duration(ms: float, _: object = None) -> str:
    """``2 ms``, ``0.5 s``."""
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def _colour(at: int) -> str:
    return _COLOURS[at % len(_COLOURS)]
