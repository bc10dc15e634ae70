from __future__ import annotations

from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from enginehouse_kit.testing import request_record
from enginehouse_otlp.genai_metrics import METRICS, GenaiMetrics
from enginehouse_otlp.messages import MetricRecord
from tests.support.jaeger import published_names


def collected(metrics: GenaiMetrics) -> dict[str, MetricRecord]:
    return {record.name: record for record in metrics.collect()}


def test_the_names_are_published() -> None:
    published = {value for key, value in vars(gen_ai_metrics).items() if key.isupper()}
    assert published >= METRICS.keys()


def test_a_stream_is_counted_in_every_histogram() -> None:
    metrics = GenaiMetrics(10)
    metrics.finished(request_record("m", "a", stream=True, arrived=10.0, sent=10.5, first_byte=11.0, ended=13.0))
    found = collected(metrics)
    totals = {name: [point.value for point in record.points] for name, record in found.items()}
    assert totals["gen_ai.server.request.duration"] == [3.0]
    assert totals["gen_ai.client.operation.duration"] == [2.5]
    assert totals["gen_ai.server.time_to_first_token"] == [1.0]
    assert totals["gen_ai.client.operation.time_to_first_chunk"] == [0.5]
    for record in found.values():
        for point in record.points:
            assert sum(point.buckets) == 1
            assert len(point.buckets) == len(record.bounds) + 1
            assert point.labels.keys() <= published_names()
            assert point.labels["gen_ai.request.model"] == "m"


def test_the_series_are_bounded() -> None:
    metrics = GenaiMetrics(2)
    for number in range(9):
        metrics.finished(request_record(f"m{number}", "a"))
    points = collected(metrics)["gen_ai.server.request.duration"].points
    assert [point.labels["gen_ai.request.model"] for point in points] == ["m0", "m1", "other"]
