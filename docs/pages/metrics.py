"""Writes ``docs/reference/metrics.md``: every metric, read from the lists that the gateway's own page is made from."""

from __future__ import annotations

from collections.abc import Iterator

from enginehouse.config.schema import PluginSettings
from enginehouse.domain.metric_info import MetricInfo
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse_metrics.metric_list import ALL

_HEAD = """\
# Metrics

`GET /metrics` answers with these metrics in Prometheus' text format, and with the `process_*` metrics of Prometheus'
client library: memory, CPU time, open files and start time. `telemetry.push_metrics` sends the same metrics to a
collector over OTLP, where the names of counters have no `_total`. `GET /metrics/engines` answers with the metrics of
all engines, each with the label `backend`.

`model` is the name that the gateway sent to the engine. At most `telemetry.max_series` pairs of `backend` and `model`
have series of their own; all others count as `other`. All times are in seconds. A broken stream counts with the status
of the error that ended it, such as 502, although its client saw 200 at the start.

| metric | kind | labels | |
|---|---|---|---|
"""


def metrics_page() -> str:
    """The page of all metrics."""
    return _HEAD + "".join(map(_row, (*ALL, *_of_plugins())))


def _of_plugins() -> Iterator[MetricInfo]:
    registry = load_plugins(PluginSettings(enabled=[])).registry
    for kind in ("authenticator", "observer", "service"):
        for type in registry.types(kind):
            yield from getattr(registry.get(kind, type).factory, "metrics", ())


def _row(metric: MetricInfo) -> str:
    name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{name}` | {metric.kind} | {labels} | {metric.text} |\n"
