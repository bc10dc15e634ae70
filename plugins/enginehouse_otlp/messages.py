"""The messages between the gateway and the process that exports."""

from __future__ import annotations

import msgspec

from enginehouse.records import TracedRequest


class ExportSettings(msgspec.Struct, frozen=True, tag="settings"):
    """The first message: ``[telemetry]`` as far as the exporter needs it. Empty texts leave it to ``OTEL_*``."""

    traces: str
    endpoint: str
    protocol: str
    headers: dict[str, str]
    service_name: str
    version: str
    flush_timeout: float


class RequestBatch(msgspec.Struct, frozen=True, tag="requests"):
    """Traced requests. ``epoch_ns``: the time of day, in nanoseconds, when ``perf_counter`` was 0."""

    epoch_ns: int
    requests: list[TracedRequest]


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One series of a metric. ``buckets``: the counts of a histogram, with ``value`` as the sum."""

    labels: dict[str, str]
    value: float
    buckets: tuple[int, ...] = ()


class MetricRecord(msgspec.Struct, frozen=True, array_like=True):
    """One metric. ``kind``: ``counter``, ``gauge`` or ``histogram``; ``bounds``: of its buckets."""

    name: str
    kind: str
    text: str
    unit: str
    points: list[Point]
    bounds: tuple[float, ...] = ()


class MetricBatch(msgspec.Struct, frozen=True, tag="metrics"):
    """All metrics at ``now_ns``, counted since ``since_ns``; both are times of day in nanoseconds."""

    now_ns: int
    since_ns: int
    metrics: list[MetricRecord]


Message = ExportSettings | RequestBatch | MetricBatch


class Report(msgspec.Struct, frozen=True):
    """The work of the exporter since its last report: handled ``records``, sent ``spans`` and ``failed`` ones."""

    records: int
    spans: int
    failed: int
