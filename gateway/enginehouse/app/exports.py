"""Makes the parts that send traces and metrics, as ``[telemetry]`` says."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec

from enginehouse.api.pages.metrics.page import Metrics
from enginehouse.api.pages.metrics.push import MetricPush
from enginehouse.config.telemetry import TelemetrySettings
from enginehouse.domain.errors import ConfigError
from enginehouse.telemetry.exporter.messages import ExportSettings
from enginehouse.telemetry.exporter_process import ExporterProcess
from enginehouse.telemetry.tracer import Tracer

_GRPC = "opentelemetry.exporter.otlp.proto.grpc"


def build_exporter(telemetry: TelemetrySettings) -> ExporterProcess | None:
    """The exporter, which is not started yet; ``None`` if nothing is exported. Raises ``ConfigError``."""
    if telemetry.protocol == "grpc" and not _installed(_GRPC):
        remedy = 'pip install "enginehouse[otlp-grpc]"'
        raise ConfigError("the exporter for gRPC is not installed", key="telemetry.protocol", remedy=remedy)
    wanted = telemetry.traces != "off" or telemetry.push_metrics > 0
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    return ExporterProcess(
        ExportSettings(
            traces=telemetry.traces,
            endpoint=telemetry.endpoint,
            protocol=telemetry.protocol or "",
            headers={name: str(value) for name, value in telemetry.headers.items()},
            service_name=telemetry.service_name,
            version=version("enginehouse"),
            flush_timeout=telemetry.flush_timeout,
        )
    )


def build_tracer(telemetry: TelemetrySettings, exporter: ExporterProcess | None) -> Tracer | None:
    """The tracer, which decides which requests are traced; ``None`` if none are."""
    if exporter is None or telemetry.traces == "off":
        return None
    return Tracer(telemetry, exporter.admits, exporter.add)


def build_metric_push(
    telemetry: TelemetrySettings, exporter: ExporterProcess | None, metrics: Metrics
) -> MetricPush | None:
    """The part that sends ``metrics`` to the collector; ``None`` if they are not sent."""
    if exporter is None or not telemetry.push_metrics:
        return None
    return MetricPush(metrics.registry.collect, exporter.send_metrics, telemetry.push_metrics)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
