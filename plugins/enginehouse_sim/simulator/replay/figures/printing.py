"""Replays as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse_sim.simulator.replay.figures.report import Report, VariantReport


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


def print_figures(variants: Sequence[Report]) -> None:
    """Print the figures of all variants side by side, the best of each line in bold, and why requests were rejected."""
    names = [each.name if isinstance(each, VariantReport) else "" for each in variants]
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
