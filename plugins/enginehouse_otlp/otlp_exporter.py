"""Sends traces and metrics to an OTLP collector, or prints them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec

from prometheus_client.core import Metric

from enginehouse import ConfigError, Exporter, Observer
from enginehouse.records import Figures, Sampling, TelemetrySettings, TracedRequest
from enginehouse_otlp.exporter_process import ExporterProcess
from enginehouse_otlp.figures import METRICS, begin
from enginehouse_otlp.genai_metrics import GenaiMetrics
from enginehouse_otlp.messages import ExportSettings
from enginehouse_otlp.metric_push import MetricPush
from enginehouse_otlp.otel_environment import TraceChoice, told, trace_choice
from enginehouse_otlp.request_parameters import request_parameters

_log = logging.getLogger(__name__)

_USUAL_INTERVAL_S = 60.0
"""OpenTelemetry's own."""
_GRPC = "opentelemetry.exporter.otlp.proto.grpc"


class OtlpExporter(Exporter):
    """Hands what it gets to a process of its own, which has OpenTelemetry's exporters."""

    metrics = METRICS
    _figures: Figures

    def __init__(self) -> None:
        self._process: ExporterProcess | None = None
        self._push: MetricPush | None = None

    def use_figures(self, figures: Figures) -> None:
        self._figures = figures
        begin(figures)

    def sampling(self, settings: TelemetrySettings) -> Sampling | None:
        choice = trace_choice(settings, os.environ)
        return None if choice.traces == "off" else Sampling(choice.ratio, choice.follows_parent)

    def parameters(self, body: bytes) -> bytes:
        return request_parameters(body)

    def prepare(
        self,
        settings: TelemetrySettings,
        collect: Callable[[], Iterable[Metric]],
        observe: Callable[[Observer], None],
    ) -> None:
        if settings.protocol == "grpc" and not _installed(_GRPC):
            remedy = 'pip install "enginehouse[otlp-grpc]"'
            raise ConfigError("the exporter for gRPC is not installed", key="telemetry.protocol", remedy=remedy)
        choice = trace_choice(settings, os.environ)
        for warning in choice.warnings:
            _log.warning("%s", warning)
        if choice.traces != "off":
            _log.info("%s", told(choice, settings, os.environ))
        interval = settings.push_metrics or (_USUAL_INTERVAL_S if settings.genai_metrics else 0.0)
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if disabled or (choice.traces == "off" and not interval):
            return
        self._process = process = ExporterProcess(_export_settings(settings, choice), self._figures)
        if interval and settings.genai_metrics:
            observe(genai := GenaiMetrics(settings.max_series))
            self._push = MetricPush(collect, process.send_metrics, interval, genai.collect)
        elif interval:
            self._push = MetricPush(collect, process.send_metrics, interval)

    def start(self) -> None:
        if self._process is not None:
            self._process.start()
        if self._push is not None:
            self._push.start()

    def admits(self) -> bool:
        return self._process is not None and self._process.admits()

    def add(self, request: TracedRequest) -> None:
        if self._process is not None:
            self._process.add(request)

    async def close(self) -> None:
        try:
            if self._push is not None:
                self._push.close()
        finally:
            if self._process is not None:
                await self._process.close()


def _export_settings(settings: TelemetrySettings, choice: TraceChoice) -> ExportSettings:
    return ExportSettings(
        traces=choice.traces,
        endpoint=settings.endpoint,
        protocol=settings.protocol or "",
        headers={name: str(value) for name, value in settings.headers.items()},
        service_name=settings.service_name,
        version=version("enginehouse"),
        flush_timeout=settings.flush_timeout,
    )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
