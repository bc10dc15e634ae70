from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExportResult

from enginehouse.interfaces.exporters import TracedRequest
from enginehouse_kit.testing import request_record
from enginehouse_otlp.framing import frame
from enginehouse_otlp.messages import ExportSettings, MetricBatch, Report, RequestBatch
from enginehouse_otlp.process import export_loop
from enginehouse_otlp.process.collector_state import LastWords
from enginehouse_otlp.process.export_loop import ExportLoop
from enginehouse_otlp.process.spans import Span, spans

SETTINGS = ExportSettings("console", "", "", {}, "", "0", 1.0)


def traced(trace_id: bytes = b"0" * 31 + b"1") -> TracedRequest:
    return TracedRequest(trace_id, 1, b"", (b"", b""), b"", request_record(None))


def test_a_record_without_spans_costs_no_other_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[Report] = []
    batch = RequestBatch(0, [traced(), traced(b"no digits"), traced()])
    ExportLoop(SETTINGS, reports.append, lambda: None).run(io.BytesIO(frame(batch)))
    assert reports == [Report(records=3, spans=2, failed=1)]
    assert capsys.readouterr().err.count('"enginehouse.request_id": "') == 2


def test_the_gateway_may_have_the_core_between_two_records_and_between_two_spans() -> None:
    yields: list[bool] = []
    batch = RequestBatch(0, [traced(), traced()])
    ExportLoop(SETTINGS, lambda report: None, lambda: yields.append(True)).run(io.BytesIO(frame(batch)))
    assert len(yields) == 4  # each record has one span


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
    assert logged == [
        [],
        ["The collector does not accept metrics: no reason was given"],
        ["The collector accepts metrics again"],
    ]


class Collector:
    """Takes spans while ``here``; ``refused``: that many times it refuses those that are not empty."""

    def __init__(self, here: bool = True, refused: int = 0) -> None:
        self.here = here
        self.refused = refused
        self.taken: list[int] = []

    def export(self, spans: Sequence[Span]) -> bool:
        if spans and self.refused:
            self.refused -= 1
            return False
        if self.here and spans:
            self.taken.append(len(spans))
        if not self.here:
            logging.getLogger("opentelemetry.exporter").warning("Transient error %s", "refused")
        return self.here

    def shutdown(self) -> None: ...


@pytest.fixture
def words() -> Iterator[LastWords]:
    words, loggers = LastWords(), [logging.getLogger(name) for name in ("opentelemetry", "urllib3")]
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    words.listen()
    yield words
    for logger, handlers, propagate in before:
        logger.handlers, logger.propagate = handlers, propagate


def test_spans_are_kept_while_the_collector_is_away_and_the_log_has_two_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, words: LastWords
) -> None:
    collector, pauses, reports = Collector(here=False), [], list[Report]()
    monkeypatch.setattr(export_loop, "span_destination", lambda *_: collector)

    def pause() -> bool:
        pauses.append(1)
        collector.here = len(pauses) == 20
        return True

    batch = RequestBatch(0, [traced()])
    ExportLoop(SETTINGS, reports.append, lambda: None, words, pause).run(io.BytesIO(frame(batch) * 3))
    assert collector.taken == [1, 1, 1]
    assert sum(report.spans for report in reports) == 3
    assert [record.message for record in caplog.records if record.name.startswith("enginehouse")] == [
        "The collector does not accept spans: Transient error refused. The gateway keeps them while it has room, "
        "and tries again",
        "The collector accepts spans again",
    ]


def test_a_batch_that_a_collector_refuses_stands_in_no_others_way(monkeypatch: pytest.MonkeyPatch) -> None:
    collector, reports = Collector(refused=2), list[Report]()
    monkeypatch.setattr(export_loop, "span_destination", lambda *_: collector)
    batch = RequestBatch(0, [traced()])
    ExportLoop(SETTINGS, reports.append, lambda: None).run(io.BytesIO(frame(batch) * 2))
    assert [(report.spans, report.failed) for report in reports] == [(0, 1), (1, 0)]


def test_an_exporter_without_a_gateway_tries_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = list[Report]()
    monkeypatch.setattr(export_loop, "span_destination", lambda *_: Collector(here=False))
    pipe = io.BytesIO(frame(RequestBatch(0, [traced()])))
    ExportLoop(SETTINGS, reports.append, lambda: None, pause=lambda: False).run(pipe)
    assert [report.failed for report in reports] == [1]


def test_what_a_client_writes_into_its_tracestate_is_no_reason(words: LastWords) -> None:
    words.listen()
    state = msgspec.structs.replace(traced(), state=b"\x9b2J=,,;")
    spans(state, 0)
    assert words.take() == "no reason was given"
