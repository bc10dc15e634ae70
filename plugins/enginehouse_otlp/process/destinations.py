"""The collector or the terminal, through OpenTelemetry's own exporters, as ``[telemetry]`` and ``OTEL_*`` say."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from enginehouse_otlp.messages import ExportSettings
from enginehouse_otlp.process.encoding import SpanEncoder
from enginehouse_otlp.process.span_batch import SpanBatch, SpanReader
from enginehouse_otlp.process.spans import Span

_DEFAULT_NAME = "enginehouse"
_EXPORTERS = "opentelemetry.exporter.otlp.proto"


class SpanDestination:
    """Where spans go: an exporter of OpenTelemetry's SDK, and what makes batches for it."""

    def __init__(self, exporter: SpanExporter, reader: SpanReader) -> None:
        self._exporter = exporter
        self._reader = reader

    def export(self, spans: Sequence[Span]) -> bool:
        """Whether they got there."""
        return self._exporter.export(SpanBatch(spans, self._reader)) is SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Send no more."""
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
    reader = SpanReader(resource, settings.version, between)
    if settings.traces == "console":
        return SpanDestination(ConsoleSpanExporter(out=sys.stderr), reader)
    if _uses_grpc(settings, "TRACES"):
        return SpanDestination(_span_exporter("grpc", _destination(settings, ""), reader), reader)
    return SpanDestination(_span_exporter("http", _destination(settings, "v1/traces"), reader), reader)


def _span_exporter(protocol: str, given: dict[str, Any], reader: SpanReader) -> SpanExporter:
    """OpenTelemetry's exporter for ``protocol``, ``http`` or ``grpc``, with the arguments ``given``.

    It takes no other encoder. Where its module has the SDK's under the name that we know, ours stands there instead.
    """
    module: Any = import_module(f"{_EXPORTERS}.{protocol}.trace_exporter")
    encoder = SpanEncoder(reader)
    if encoder.replaces(getattr(module, "encode_spans", None)):
        module.encode_spans = encoder.encode
    exporter: SpanExporter = module.OTLPSpanExporter(**given)
    return exporter


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
