from __future__ import annotations

import io

import pytest

from enginehouse.telemetry.exporter.export_loop import ExportLoop
from enginehouse.telemetry.exporter.framing import frame
from enginehouse.telemetry.exporter.messages import ExportSettings, Report, RequestBatch, TracedRequest
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
