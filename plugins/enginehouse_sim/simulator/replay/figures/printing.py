"""Replays as tables and as pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse import ConfigError
from enginehouse_sim.simulator.replay.figures.report import Moment, Record, Report, Slo

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

_DISTRIBUTIONS = (("ttft", "Time to first token"), ("tpot", "Mean time between tokens"), ("latency", "Whole answer"))
_OVER_TIME: Sequence[tuple[str, str, Callable[[Moment], float]]] = (
    ("Requests that wait", "requests", lambda each: each.waiting + each.queued),
    ("At the busiest engine", "requests", lambda each: each.busiest),
    ("KV cache in use", "% of blocks", lambda each: 100 * each.kv_use),
)

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
    from cycler import cycler

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=_COLOURS)}):
        figure, (distributions, times) = pyplot.subplots(2, 3, figsize=(13, 7.4), layout="constrained")
        for axes, (name, title) in zip(distributions, _DISTRIBUTIONS, strict=True):
            shown: list[Curve] = [getattr(each, name) for each in curves]
            for curve in shown:
                axes.step([ms for ms, _ in curve], [share for _, share in curve], where="post")
            seconds = getattr(curves[0].slo, name, None)
            if seconds is not None:
                axes.axvline(seconds * 1000, color="black", linewidth=1, linestyle="--", label="objective")
                axes.legend()
            axes.set(title=title, xlabel="ms", ylabel="% of requests", ylim=(0, 101))
            if all(curve and curve[0][0] > 0 for curve in shown):
                axes.set_xscale("log")
        for axes, (title, unit, value_of) in zip(times, _OVER_TIME, strict=True):
            for each in curves:
                values = [value_of(moment) for moment in each.moments]
                smooth = _smoothed(values, max(1, len(values) // _STRETCHES))
                axes.plot([moment.time for moment in each.moments], smooth, linewidth=1.4)
            axes.set(title=title, xlabel="virtual time, s", ylabel=unit, ylim=(0, None))
        if len(names) > 1:
            figure.legend(times[0].lines, names, loc="outside upper left", ncols=min(4, len(names)))
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The picture cannot be written: {error}", key="--plot") from error
        finally:
            pyplot.close(figure)


def _smoothed(values: Sequence[float], width: int) -> list[float]:
    """For each value, the mean of the last ``width`` values."""
    sums = [0.0, *accumulate(values)]
    return [(sums[at] - sums[max(0, at - width)]) / min(at, width) for at in range(1, len(sums))]


class _Row(msgspec.Struct, frozen=True):
    """One line of the comparison. ``best``: chooses the best value, or ``None`` if none is better."""

    name: str
    value_of: Callable[[Report], float]
    text: str = "{:,.1f}"
    best: Callable[[Sequence[float]], float] | None = min


_ROWS = (
    _Row("answered requests", lambda f: f.requests, "{:,.0f}", max),
    _Row("rejected", lambda f: f.rejected, "{:,.0f}"),
    _Row("within the objectives, %", lambda f: 100 * (f.slo_attainment or 0), best=max),
    _Row("requests/s", lambda f: f.requests_per_second, "{:,.2f}", max),
    _Row("output tokens/s", lambda f: f.output_tokens_per_second, best=max),
    _Row("ttft p50, ms", lambda f: f.ttft_ms.p50),
    _Row("ttft p99, ms", lambda f: f.ttft_ms.p99),
    _Row("itl p50, ms", lambda f: f.itl_ms.p50),
    _Row("itl p99, ms", lambda f: f.itl_ms.p99),
    _Row("tpot p99, ms", lambda f: f.tpot_ms.p99),
    _Row("latency p50, ms", lambda f: f.latency_ms.p50),
    _Row("latency p99, ms", lambda f: f.latency_ms.p99),
    _Row("input from the cache, %", lambda f: 100 * f.cache_hit_ratio, best=max),
    _Row("preemptions", lambda f: f.preemptions, "{:,.0f}"),
    _Row("swaps", lambda f: f.swaps, "{:,.0f}"),
    _Row("migrations", lambda f: f.migrations, "{:,.0f}", None),
    _Row("gap of a migration p99, ms", lambda f: f.migration_gap_ms.p99, best=None),
    _Row("sent again", lambda f: f.retried, "{:,.0f}", None),
    _Row("asked of a second replica", lambda f: f.hedged, "{:,.0f}", None),
    _Row("continued after a break", lambda f: f.continued, "{:,.0f}", None),
    _Row("broken", lambda f: f.broken, "{:,.0f}"),
    _Row("busiest engine / mean", lambda f: f.imbalance, "{:.2f}"),
)


def print_figures(names: Sequence[str], variants: Sequence[Report]) -> None:
    """Print the figures of all variants side by side, the best of each line in bold, and why requests were rejected."""
    table = Table("", show_header=any(names))
    for name in names:
        table.add_column(name.replace(", ", "\n").replace("=", "\n"), justify="right")
    for row in _ROWS:
        values = [row.value_of(variant) for variant in variants]
        if row.name.startswith("within") and variants[0].slo_attainment is None:
            continue
        table.add_row(row.name, *_cells(row, values))
    console = Console()
    console.print(table)
    for name, variant in zip(names, variants, strict=True):
        if variant.rejections:
            why = ", ".join(f"{number} {code}" for code, number in variant.rejections.items())
            console.print(f"rejected{' with ' * bool(name)}{name}: {why}")
    if len(variants) > 1:
        console.print("bold: the best of a line")
    console.print("Rejected requests are in no other figure, but count as missed objectives.")


def _cells(row: _Row, values: Sequence[float]) -> list[str]:
    texts = [row.text.format(value) for value in values]
    if row.best is None or len(set(texts)) == 1:
        return texts
    best = row.text.format(row.best(values))
    return [f"[bold]{text}[/bold]" if text == best else text for text in texts]
