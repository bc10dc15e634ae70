"""The exporter's loop: reads messages, exports them, reports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import BinaryIO

from opentelemetry.sdk.metrics.export import MetricExportResult

from enginehouse.telemetry.exporter.destinations import metric_exporter, resource, span_destination
from enginehouse.telemetry.exporter.framing import read_frame
from enginehouse.telemetry.exporter.messages import ExportSettings, MetricBatch, Report, RequestBatch
from enginehouse.telemetry.exporter.metrics import metrics_data
from enginehouse.telemetry.exporter.spans import Span, spans

_log = logging.getLogger(__name__)


class ExportLoop:
    """Exports what arrives, one message at a time.

    It reads no faster than the collector accepts. Then the pipe fills, and the gateway drops records that do not fit.
    This bounds the memory of both. ``between``: called between two pieces of its work.
    """

    def __init__(self, settings: ExportSettings, report: Callable[[Report], None], between: Callable[[], None]) -> None:
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
        try:
            sent = self._spans.export(made)
        except Exception:
            _log.exception("Spans cannot be exported")
            sent = False
        self._report(Report(len(batch.requests), len(made) if sent else 0, broken + (0 if sent else len(made))))

    def _export_metrics(self, batch: MetricBatch) -> None:
        try:
            data = metrics_data(batch, self._resource, self._version)
            if self._metrics.export(data) is not MetricExportResult.SUCCESS:
                _log.warning("Metrics could not be exported")
        except Exception:
            _log.exception("Metrics cannot be exported")
