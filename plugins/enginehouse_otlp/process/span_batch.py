"""Spans as the exporters of OpenTelemetry's SDK read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from enginehouse_otlp.process.spans import Span, SpanId

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SpanReader:
    """Makes batches of the spans of one gateway. ``resource``: the description of the gateway in all of them.

    ``between``: called before each span is read.
    """

    def __init__(self, resource: Resource, version: str, between: Callable[[], None]) -> None:
        self.resource = resource
        self.version = version
        self.between = between
        self._scope = InstrumentationScope("enginehouse", version)

    def readable(self, span: Span) -> ReadableSpan:
        """``span`` as the SDK has it."""
        self.between()
        return ReadableSpan(
            span.name,
            _context(span.id, span.state),
            _context(span.parent, span.state) if span.parent is not None else None,
            self.resource,
            span.attributes,
            events=[Event(event.name, event.attributes, event.at) for event in span.events],
            links=(Link(_context(span.link, span.state)),) if span.link is not None else (),
            kind=span.kind,
            status=Status(StatusCode.ERROR, span.error or None) if span.error is not None else Status(),
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self._scope,
        )


class SpanBatch(Sequence[ReadableSpan]):
    """``spans`` for an exporter. Each one is made when the exporter reads it."""

    def __init__(self, spans: Sequence[Span], reader: SpanReader) -> None:
        self.spans = spans
        self._reader = reader

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return SpanBatch(self.spans[index], self._reader)
        return self._reader.readable(self.spans[index])


def _context(span: SpanId, state: str) -> SpanContext:
    return SpanContext(span.trace, span.span, span.remote, _SAMPLED, TraceState.from_header([state] if state else []))
