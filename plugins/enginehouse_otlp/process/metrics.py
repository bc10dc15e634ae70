"""The gateway's metrics in OpenTelemetry's form."""

from __future__ import annotations

from functools import partial
from typing import cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from enginehouse_otlp.messages import MetricBatch, MetricRecord, Point

_UNKNOWN = cast(float, None)
"""The value of fields that the messages leave out, because the SDK's types want a number."""
_TOTAL = AggregationTemporality.CUMULATIVE


def metrics_data(batch: MetricBatch, resource: Resource, version: str) -> MetricsData:
    """All metrics of ``batch``, counted since the gateway started."""
    metrics = [_metric(record, batch) for record in batch.metrics]
    scope = ScopeMetrics(InstrumentationScope("enginehouse", version), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(record: MetricRecord, batch: MetricBatch) -> Metric:
    make = partial(Metric, record.name, record.text, record.unit)
    if record.kind == "histogram":
        return make(Histogram([_histogram(point, record, batch) for point in record.points], _TOTAL))
    numbers = [NumberDataPoint(point.labels, batch.since_ns, batch.now_ns, point.value) for point in record.points]
    return make(Gauge(numbers) if record.kind == "gauge" else Sum(numbers, _TOTAL, True))


def _histogram(point: Point, record: MetricRecord, batch: MetricBatch) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=point.labels,
        start_time_unix_nano=batch.since_ns,
        time_unix_nano=batch.now_ns,
        count=sum(point.buckets),
        sum=point.value,
        bucket_counts=point.buckets,
        explicit_bounds=record.bounds,
        min=_UNKNOWN,
        max=_UNKNOWN,
    )
