"""A collector that keeps what OTLP exporters send, read with OpenTelemetry's own protocol package."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan


class CollectedSpan(NamedTuple):
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    attributes: Mapping[str, Any]
    failed: bool
    message: str
    links: tuple[tuple[str, str], ...]
    state: str
    began: int
    ended: int
    resource: Mapping[str, Any]
    events: tuple[tuple[str, int], ...] = ()


class SpanCollector:
    """Keeps spans and metrics. ``url``: its address. ``requests`` has the headers of each export."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[CollectedSpan] = []
        self.metrics: dict[str, Any] = {}
        self.requests: list[Mapping[str, str]] = []

    def take_spans(self, request: ExportTraceServiceRequest) -> None:
        for group in request.resource_spans:
            resource = _attributes(group.resource.attributes)
            self.spans += [_span(span, resource) for scope in group.scope_spans for span in scope.spans]

    def take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for group in request.resource_metrics:
            for scope in group.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}

    def read(self) -> list[CollectedSpan]:
        """The spans so far."""
        return list(self.spans)

    def until(self, holds: Callable[[list[CollectedSpan]], bool], timeout: float = 280.0) -> list[CollectedSpan]:
        """The spans, as soon as ``holds`` is true for them. Raises ``TimeoutError`` with their names.

        The exporter is niced: beside busy processes, it starts some hundred times more slowly.
        """
        end = time.monotonic() + timeout
        while not holds(spans := self.read()):
            if time.monotonic() > end:
                raise TimeoutError(f"after {timeout:g} s there are only {[span.name for span in spans]}")
            time.sleep(0.02)
        return spans

    def trace(self, trace_id: str, *names: str) -> dict[str, CollectedSpan]:
        """The spans of one trace by name, as soon as those of ``names`` are there."""
        spans = self.until(lambda spans: {*names} <= {span.name for span in spans if span.trace_id == trace_id})
        return {span.name: span for span in spans if span.trace_id == trace_id}


class HttpCollector(SpanCollector):
    """A collector that speaks OTLP/HTTP at ``url``. Use it as a context manager; ``stop`` makes it unreachable.

    ``port``: any free one by default.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        self._port = port

    def __enter__(self) -> HttpCollector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.requests.append({name.lower(): value for name, value in self.headers.items()})
                if self.path == "/v1/traces":
                    collector.take_spans(ExportTraceServiceRequest.FromString(body))
                elif self.path == "/v1/metrics":
                    collector.take_metrics(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200 if self.path in ("/v1/traces", "/v1/metrics") else 404)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class GrpcCollector(SpanCollector, TraceServiceServicer):
    """A collector that speaks OTLP/gRPC at ``url``. Use it as a context manager."""

    def __enter__(self) -> GrpcCollector:
        self._grpc = grpc.server(ThreadPoolExecutor(max_workers=2))
        add_TraceServiceServicer_to_server(self, self._grpc)  # type: ignore[no-untyped-call]
        self.url = f"http://127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()
        return self

    def Export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:
        self.requests.append({pair[0]: str(pair[1]) for pair in context.invocation_metadata()})
        self.take_spans(request)
        return ExportTraceServiceResponse()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._grpc.stop(None)


def _span(span: ProtoSpan, resource: Mapping[str, Any]) -> CollectedSpan:
    return CollectedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=ProtoSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        attributes=_attributes(span.attributes),
        failed=span.status.code == 2,
        message=span.status.message,
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        state=span.trace_state,
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        resource=resource,
        events=tuple((event.name, event.time_unix_nano) for event in span.events),
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
