"""The exporter's loop: reads messages, exports them, reports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import BinaryIO

from opentelemetry.sdk.metrics.export import MetricExportResult

from enginehouse_otlp.framing import read_frame
from enginehouse_otlp.messages import ExportSettings, MetricBatch, Report, RequestBatch
from enginehouse_otlp.process.collector_state import CollectorState, LastWords
from enginehouse_otlp.process.destinations import metric_exporter, resource, span_destination
from enginehouse_otlp.process.metrics import metrics_data
from enginehouse_otlp.process.spans import Span, spans

_log = logging.getLogger(__name__)


class ExportLoop:
    """Exports what arrives, one message at a time.

    It reads no faster than the collector accepts. Then the pipe fills, and the gateway drops records that do not fit.
    This bounds the memory of both. ``between``: called between two pieces of its work. ``words``: of OpenTelemetry's
    exporters. ``pause``: waits before spans are sent once more; whether they are.
    """

    def __init__(
        self,
        settings: ExportSettings,
        report: Callable[[Report], None],
        between: Callable[[], None],
        words: LastWords | None = None,
        pause: Callable[[], bool] = bool,
    ) -> None:
        words = words or LastWords()
        self._taken = {
            "spans": CollectorState("spans", words, ". The gateway keeps them while it has room, and tries again"),
            "metrics": CollectorState("metrics", words),
        }
        self._pause = pause
        self._report = report
        self._between = between
        self._resource = resource(settings)
        self._version = settings.version
        self._spans = span_destination(settings, self._resource, between)
        self._metrics = metric_exporter(settings)

    def run(self, pipe: BinaryIO) -> None:
        """Export every message until the pipe ends."""
        while (message := read_frame(pipe)) is not None:
            if isinstance(message, RequestBatch):
                self._export_requests(message)
            elif isinstance(message, MetricBatch):
                self._export_metrics(message)
        self._spans.shutdown()
        self._metrics.shutdown()

    def _export_requests(self, batch: RequestBatch) -> None:
        made: list[Span] = []
        broken = 0
        for request in batch.requests:
            self._between()
            try:
                made += spans(request, batch.epoch_ns)
            except Exception:  # the spans of the other requests are fine
                _log.exception("The spans of a request cannot be made")
                broken += 1
        sent = self._send(made)
        self._report(Report(len(batch.requests), len(made) if sent else 0, broken + (0 if sent else len(made))))

    def _send(self, made: list[Span]) -> bool:
        """Whether the collector has taken the spans. While it is away, this tries again.

        A collector that takes an empty message is there: if it refuses the spans after that, they are lost.
        """
        while not (sent := self._try(made)):
            self._taken["spans"].note(taken=False)
            if self._try([]):
                sent = self._try(made)
                break
            if not self._pause():
                return False
        self._taken["spans"].note(taken=sent)
        return sent

    def _try(self, made: list[Span]) -> bool:
        try:
            return self._spans.export(made)
        except Exception:
            _log.exception("Spans cannot be exported")
            return False

    def _export_metrics(self, batch: MetricBatch) -> None:
        try:
            data = metrics_data(batch, self._resource, self._version)
            self._taken["metrics"].note(taken=self._metrics.export(data) is MetricExportResult.SUCCESS)
        except Exception:
            _log.exception("Metrics cannot be exported")
