"""Makes the parts that send traces and metrics, as ``[telemetry]`` says."""

from __future__ import annotations

import logging
import os
from importlib.metadata import version
from importlib.util import find_spec
from typing import Protocol

from enginehouse.api.pages.metrics.page import Metrics
from enginehouse.api.pages.metrics.push import MetricPush
from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.errors import ConfigError
from enginehouse.telemetry.exporter.messages import ExportSettings, TracedRequest
from enginehouse.telemetry.exporter_process import ExporterProcess
from enginehouse.telemetry.genai_metrics import GenaiMetrics
from enginehouse.telemetry.observers import Observers
from enginehouse.telemetry.otel_environment import told, trace_choice
from enginehouse.telemetry.tracer import Tracer

_log = logging.getLogger(__name__)

_USUAL_INTERVAL_S = 60.0
"""OpenTelemetry's own."""
_GRPC = "opentelemetry.exporter.otlp.proto.grpc"


def build_exporter(telemetry: TelemetrySettings) -> ExporterProcess | None:
    """The exporter, which is not started yet; ``None`` if nothing is exported. Raises ``ConfigError``."""
    if telemetry.protocol == "grpc" and not _installed(_GRPC):
        remedy = 'pip install "enginehouse[otlp-grpc]"'
        raise ConfigError("the exporter for gRPC is not installed", key="telemetry.protocol", remedy=remedy)
    choice = trace_choice(telemetry, os.environ)
    for warning in choice.warnings:
        _log.warning("%s", warning)
    if choice.traces != "off":
        _log.info("%s", told(choice, telemetry, os.environ))
    wanted = choice.traces != "off" or _push_interval(telemetry) > 0
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    return ExporterProcess(
        ExportSettings(
            traces=choice.traces,
            endpoint=telemetry.endpoint,
            protocol=telemetry.protocol or "",
            headers={name: str(value) for name, value in telemetry.headers.items()},
            service_name=telemetry.service_name,
            version=version("enginehouse"),
            flush_timeout=telemetry.flush_timeout,
        )
    )


class TraceExporter(Protocol):
    """Takes traced requests."""

    def admits(self) -> bool:
        """Whether a request that begins now may be traced."""

    def add(self, request: TracedRequest) -> None:
        """Send ``request`` soon."""


def build_tracer(telemetry: TelemetrySettings, exporter: TraceExporter | None) -> Tracer | None:
    """The tracer, which decides which requests are traced; ``None`` if none are."""
    choice = trace_choice(telemetry, os.environ)
    if exporter is None or choice.traces == "off":
        return None
    ratio, follows_parent = choice.ratio, choice.follows_parent
    return Tracer(telemetry, exporter.admits, exporter.add, ratio=ratio, follows_parent=follows_parent)


def build_metric_push(
    telemetry: TelemetrySettings, exporter: ExporterProcess | None, metrics: Metrics, observers: Observers
) -> MetricPush | None:
    """The part that sends ``metrics`` to the collector; ``None`` if they are not sent.

    With ``telemetry.genai_metrics``, one of ``observers`` counts for OpenTelemetry's conventions.
    """
    interval = _push_interval(telemetry)
    if exporter is None or not interval:
        return None
    if not telemetry.genai_metrics:
        return MetricPush(metrics.registry.collect, exporter.send_metrics, interval)
    observers.add(genai := GenaiMetrics(telemetry.max_series))
    return MetricPush(metrics.registry.collect, exporter.send_metrics, interval, genai.collect)


def _push_interval(telemetry: TelemetrySettings) -> float:
    """The seconds between two exports of metrics; 0 for none."""
    return telemetry.push_metrics or (_USUAL_INTERVAL_S if telemetry.genai_metrics else 0.0)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
