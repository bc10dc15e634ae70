from __future__ import annotations

import io
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExportResult

from enginehouse.telemetry.exporter import export_loop
from enginehouse.telemetry.exporter.export_loop import ExportLoop
from enginehouse.telemetry.exporter.framing import frame
from enginehouse.telemetry.exporter.messages import ExportSettings, MetricBatch, Report, RequestBatch, TracedRequest
from enginehouse.testing import request_record

SETTINGS = ExportSettings("console", "", "", {}, "", "0", 1.0)


def traced(trace_id: bytes = b"0" * 31 + b"1") -> TracedRequest:
    return TracedRequest(trace_id, 1, b"", (b"", b""), b"", request_record(None))


def test_a_record_without_spans_costs_no_other_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[Report] = []
    batch = RequestBatch(0, [traced(), traced(b"no digits"), traced()])
    ExportLoop(SETTINGS, reports.append, lambda: None).run(io.BytesIO(frame(batch)))
    assert reports == [Report(records=3, spans=2, failed=1)]
    assert capsys.readouterr().err.count('"enginehouse.request_id": "') == 2


def test_the_gateway_may_have_the_core_between_two_records() -> None:
    yields: list[bool] = []
    batch = RequestBatch(0, [traced(), traced()])
    ExportLoop(SETTINGS, lambda report: None, lambda: yields.append(True)).run(io.BytesIO(frame(batch)))
    assert len(yields) == 2


class Metrics(ConsoleMetricExporter):
    """Prints metrics, and says of each batch what it was told to."""

    def __init__(self, *results: MetricExportResult) -> None:
        super().__init__(out=io.StringIO())
        self._results = list(results)

    def export(self, *args: Any, **kwargs: Any) -> MetricExportResult:
        super().export(*args, **kwargs)
        return self._results.pop(0)


def test_only_metrics_that_do_not_arrive_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics(MetricExportResult.SUCCESS, MetricExportResult.FAILURE, MetricExportResult.SUCCESS)
    monkeypatch.setattr(export_loop, "metric_exporter", lambda settings: metrics)
    logged = []
    loop = ExportLoop(SETTINGS, lambda report: None, lambda: None)
    for _ in range(3):
        loop.run(io.BytesIO(frame(MetricBatch(2, 1, []))))
        logged.append([record.message for record in caplog.records])
        caplog.clear()
    assert logged == [[], ["Metrics could not be exported"], []]
