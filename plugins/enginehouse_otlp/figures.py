"""What the exporter counts of the traces that pass through it."""

from __future__ import annotations

from enginehouse.records import Figures
from enginehouse.services import MetricInfo

SPANS = MetricInfo(
    "counter",
    "enginehouse_spans",
    "Spans that the collector took (`sent`) or did not take (`failed`).",
    ("outcome",),
)
TRACES_DROPPED = MetricInfo(
    "counter",
    "enginehouse_traces_dropped",
    "Sampled requests without a trace, or only with one made at their end because they were slow or failed: too many "
    "records waited for the exporter (`full`), or it `died`.",
    ("why",),
)
RESTARTS = MetricInfo("counter", "enginehouse_exporter_restarts", "Restarts of the exporter.")
METRICS = (SPANS, TRACES_DROPPED, RESTARTS)


def begin(figures: Figures) -> None:
    """Show every series from the start: a rate wants a value before the first event."""
    for outcome in ("sent", "failed"):
        figures.count(SPANS, (outcome,), 0)
    for why in ("full", "died"):
        figures.count(TRACES_DROPPED, (why,), 0)
    figures.count(RESTARTS, (), 0)
