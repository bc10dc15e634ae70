"""The metrics for an OTLP collector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import time_ns

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from enginehouse.runtime import BackgroundTasks
from enginehouse_otlp.messages import MetricBatch, MetricRecord, Point


class MetricPush:
    """Hands the metrics that ``collect`` returns to ``send`` every ``interval`` seconds, and once at the end.

    ``more``: returns those that only a collector gets.
    """

    def __init__(
        self,
        collect: Callable[[], Iterable[Metric]],
        send: Callable[[MetricBatch], None],
        interval: float,
        more: Callable[[], Iterable[MetricRecord]] = tuple,
    ) -> None:
        self._more = more
        self._collect = collect
        self._send = send
        self._interval = interval
        self._since = time_ns()
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._tasks.every(self._interval, self._push)

    def close(self) -> None:
        """Hand over the last figures."""
        self._tasks.cancel()
        self._hand_over([as_record(metric) for metric in self._collect()])

    async def _push(self) -> None:
        records = []
        for metric in self._collect():
            records.append(as_record(metric))
            await asyncio.sleep(0)  # with many replicas, all of them take seconds
        self._hand_over(records)

    def _hand_over(self, records: Sequence[MetricRecord]) -> None:
        self._send(MetricBatch(time_ns(), self._since, [*records, *self._more()]))


def as_record(metric: Metric) -> MetricRecord:
    """A family of Prometheus as the exporter takes it. OTLP has no ``_total``, and units beside the names."""
    unit = "s" if metric.name.endswith("_seconds") else ""
    if metric.type == "histogram":
        points, bounds = _histogram_points(metric.samples)
        return MetricRecord(metric.name, "histogram", metric.documentation, unit, points, bounds)
    kind = "counter" if metric.type == "counter" else "gauge"
    points = [Point(dict(sample.labels), float(sample.value)) for sample in metric.samples]
    return MetricRecord(metric.name, kind, metric.documentation, unit, points)


def _histogram_points(samples: Iterable[Sample]) -> tuple[list[Point], tuple[float, ...]]:
    """One point for each set of labels. Prometheus adds the counts of all lower buckets to each; OTLP does not."""
    points: list[Point] = []
    bounds: list[float] = []
    counts: list[int] = []
    for sample in samples:
        if sample.name.endswith("_bucket"):
            if not counts:
                bounds.clear()
            bounds.append(float(sample.labels["le"]))
            counts.append(int(sample.value))
        elif sample.name.endswith("_sum"):
            separate = tuple(count - below for count, below in zip(counts, [0, *counts], strict=False))
            points.append(Point(dict(sample.labels), float(sample.value), separate))
            counts.clear()
    return points, tuple(bounds[:-1])
