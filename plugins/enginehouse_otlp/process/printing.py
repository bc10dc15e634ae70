"""Prints spans with the console exporter of OpenTelemetry's SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from enginehouse_otlp.process.spans import Span, SpanId

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SpanPrinter:
    """Prints spans to ``out``. ``resource``: the description of the gateway in all of them."""

    def __init__(self, resource: Resource, version: str, out: TextIO) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("enginehouse", version)
        self._exporter = ConsoleSpanExporter(out=out)

    def export(self, spans: Sequence[Span]) -> bool:
        return self._exporter.export([self.readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def readable(self, span: Span) -> ReadableSpan:
        """``span`` as the SDK's exporters want it."""
        return ReadableSpan(
            span.name,
            _context(span.id, span.state),
            _context(span.parent, span.state) if span.parent is not None else None,
            self._resource,
            span.attributes,
            events=[Event(event.name, event.attributes, event.at) for event in span.events],
            links=(Link(_context(span.link, span.state)),) if span.link is not None else (),
            kind=span.kind,
            status=Status(StatusCode.ERROR, span.error or None) if span.error is not None else Status(),
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self._scope,
        )


def _context(span: SpanId, state: str) -> SpanContext:
    return SpanContext(span.trace, span.span, span.remote, _SAMPLED, TraceState.from_header([state] if state else []))
