"""OpenTelemetry's own exporters, as ``[telemetry]`` and the ``OTEL_*`` variables say."""

from __future__ import annotations

import os
import sys
from typing import Any

from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter

from enginehouse.telemetry.exporter.messages import ExportSettings

_DEFAULT_NAME = "enginehouse"


def resource(settings: ExportSettings) -> Resource:
    """The description of the gateway in all spans and metrics, with the attributes that the environment adds."""
    attributes = {SERVICE_VERSION: settings.version}
    named = os.environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if settings.service_name or not named:
        attributes[SERVICE_NAME] = settings.service_name or _DEFAULT_NAME
    return Resource.create(attributes)


def span_exporter(settings: ExportSettings) -> SpanExporter:
    """Sends spans to the collector, or prints them to standard error."""
    if settings.traces == "console":
        return ConsoleSpanExporter(out=sys.stderr)
    if _uses_grpc(settings, "TRACES"):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as ByGrpc

        return ByGrpc(**_destination(settings, ""))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(**_destination(settings, "v1/traces"))


def metric_exporter(settings: ExportSettings) -> MetricExporter:
    """Sends metrics to the collector, or prints them to standard error."""
    if settings.traces == "console":
        return ConsoleMetricExporter(out=sys.stderr)
    if _uses_grpc(settings, "METRICS"):
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as ByGrpc

        return ByGrpc(**_destination(settings, ""))
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(**_destination(settings, "v1/metrics"))


def _uses_grpc(settings: ExportSettings, signal: str) -> bool:
    environ = os.environ
    told = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    return (settings.protocol or told) == "grpc"


def _destination(settings: ExportSettings, path: str) -> dict[str, Any]:
    """The address and the headers. The exporter reads missing ones from its variables."""
    given: dict[str, Any] = {}
    if settings.endpoint:
        given["endpoint"] = f"{settings.endpoint.rstrip('/')}/{path}".rstrip("/")
    if settings.headers:
        given["headers"] = {name.lower(): value for name, value in settings.headers.items()}  # as gRPC wants them
    return given
