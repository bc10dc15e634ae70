"""Prints the figures of replays for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse_sim.simulator.replay.figures.report import Distribution, Report

_LATENCIES = ("ttft", "itl", "tpot", "latency")


def print_one(figures: Report) -> None:
    """Print all figures of one replay."""
    console = Console()
    console.print(
        f"{_counted(figures.requests, 'request')} in {figures.virtual_seconds:,.1f} virtual seconds: "
        f"{figures.requests_per_second:,.2f} requests/s, {figures.output_tokens_per_second:,.1f} output tokens/s"
    )
    console.print(
        f"{_counted(figures.steps, 'step')} of {figures.mean_batch:.1f} requests; {figures.preemptions} preemptions; "
        f"{figures.cache_hit_ratio:.1%} of the input was cached"
    )
    if figures.rejected:
        why = ", ".join(f"{number} {code}" for code, number in figures.rejections.items())
        console.print(f"Rejected, and in no other figure: {_counted(figures.rejected, 'request')} ({why})")
    if figures.slo_attainment is not None:
        console.print(f"{figures.slo_attainment:.1%} of all requests were answered within the objectives")
    if figures.retried or figures.hedged or figures.continued or figures.broken:
        console.print(
            f"{figures.retried} retries, {figures.hedged} hedges, {figures.continued} continuations of broken streams; "
            f"{figures.broken} answers stayed broken"
        )
    if not figures.requests:
        return
    latencies = Table("ms", "mean", "p50", "p90", "p99", "max")
    for name in _LATENCIES:
        spread: Distribution = getattr(figures, f"{name}_ms")
        latencies.add_row(name, *(f"{value:,.1f}" for value in msgspec.structs.astuple(spread)))
    console.print(latencies)
    console.print(f"{figures.speed:,.0f} virtual seconds in each real one")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


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


def print_all(names: Sequence[str], variants: Sequence[Report]) -> None:
    """Print the figures of all variants side by side, the best of each line in bold."""
    table = Table("", title=None)
    for name in names:
        table.add_column(name.replace(", ", "\n").replace("=", "\n"), justify="right")
    for row in _ROWS:
        values = [row.value_of(variant) for variant in variants]
        if row.name.startswith("within") and variants[0].slo_attainment is None:
            continue
        table.add_row(row.name, *_cells(row, values))
    console = Console()
    console.print(table)
    console.print("bold: the best of a line. Rejected requests are in no other figure, but count as missed objectives.")


def _cells(row: _Row, values: Sequence[float]) -> list[str]:
    texts = [row.text.format(value) for value in values]
    if row.best is None or len(set(texts)) == 1:
        return texts
    best = row.text.format(row.best(values))
    return [f"[bold]{text}[/bold]" if text == best else text for text in texts]
