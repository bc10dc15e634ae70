"""The collector or the terminal, through OpenTelemetry's own exporters, as ``[telemetry]`` and ``OTEL_*`` say."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from enginehouse_otlp.messages import ExportSettings
from enginehouse_otlp.process.encoding import SpanEncoder
from enginehouse_otlp.process.printing import SpanPrinter
from enginehouse_otlp.process.spans import Span

_DEFAULT_NAME = "enginehouse"
_EXPORTERS = "opentelemetry.exporter.otlp.proto"


class SpanDestination(Protocol):
    """Where spans go."""

    def export(self, spans: Sequence[Span]) -> bool:
        """Whether they got there."""

    def shutdown(self) -> None:
        """Send no more."""


class SpanSender:
    """Sends spans to the collector with OpenTelemetry's exporter for a ``protocol``: ``http`` or ``grpc``.

    ``given`` are its arguments. That exporter takes no other encoder, so its module gets ours under the name of the
    SDK's.
    """

    def __init__(self, protocol: str, given: dict[str, Any], encoder: SpanEncoder) -> None:
        module: Any = import_module(f"{_EXPORTERS}.{protocol}.trace_exporter")
        if not hasattr(module, "encode_spans"):
            raise RuntimeError(f"opentelemetry-exporter-otlp-proto-{protocol} is too new: install an earlier release")
        module.encode_spans = encoder.encode
        self._exporter = module.OTLPSpanExporter(**given)

    def export(self, spans: Sequence[Span]) -> bool:
        return bool(self._exporter.export(spans) is SpanExportResult.SUCCESS)

    def shutdown(self) -> None:
        self._exporter.shutdown()


def resource(settings: ExportSettings) -> Resource:
    """The description of the gateway in all spans and metrics, with the attributes that the environment adds."""
    attributes = {SERVICE_VERSION: settings.version}
    named = os.environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if settings.service_name or not named:
        attributes[SERVICE_NAME] = settings.service_name or _DEFAULT_NAME
    return Resource.create(attributes)


def span_destination(settings: ExportSettings, resource: Resource, between: Callable[[], None]) -> SpanDestination:
    """The collector, or standard error. ``between``: called before each span is encoded."""
    if settings.traces == "console":
        return SpanPrinter(resource, settings.version, sys.stderr)
    encoder = SpanEncoder(resource, settings.version, between)
    if _uses_grpc(settings, "TRACES"):
        return SpanSender("grpc", _destination(settings, ""), encoder)
    return SpanSender("http", _destination(settings, "v1/traces"), encoder)


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
