"""The spans of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from enginehouse.telemetry.exporter.attributes import (
    root_attributes,
    root_name,
    route_attributes,
    swap_attributes,
    upstream_attributes,
)
from enginehouse.telemetry.exporter.messages import RequestRecord, UpstreamRecord
from enginehouse.telemetry.trace_context import BETWEEN, ROUTE, SCHEDULE, SWAP, UPSTREAM, span_number

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SERVER_FAILED, _CLIENT_FAILED = 500, 400
_SHORTEST_WAIT_S = 0.001
_MOVED = "moved"
"""The outcome of an attempt whose stream was moved elsewhere on purpose."""
_OVERTAKEN = "overtaken"
"""The outcome of an attempt whose rival was first to begin."""


class SpanMaker:
    """Makes spans. ``resource``: the description of the gateway in all of them."""

    def __init__(self, resource: Resource, version: str) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("enginehouse", version)

    def spans(self, record: RequestRecord, epoch_ns: int) -> Sequence[ReadableSpan]:
        """A request's own span, and those below it. ``epoch_ns``: when its clock was 0, in nanoseconds of the day."""
        trace = _RequestTrace(record, epoch_ns, self._resource, self._scope)
        return [trace.root(), *trace.below()]


class _RequestTrace:
    """The trace of one request."""

    def __init__(self, record: RequestRecord, epoch_ns: int, resource: Resource, scope: InstrumentationScope) -> None:
        self._record = record
        self._epoch = epoch_ns
        self._resource = resource
        self._scope = scope
        self._trace_id = int(record.trace_id, 16)
        state = record.state.decode("latin-1")
        self._state = TraceState.from_header([state]) if state else TraceState()

    def root(self) -> ReadableSpan:
        record = self._record
        link = self._context(int(record.link[1], 16), int(record.link[0], 16)) if record.link[0] else None
        failed = record.ending.status >= _SERVER_FAILED
        return self._span(
            root_name(record),
            self._context(record.root),
            self._context(int(record.parent, 16), remote=True) if record.parent else None,
            (record.began, record.ended),
            root_attributes(record),
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR, record.ending.message or None) if failed else Status(),
            links=(Link(link),) if link is not None else (),
        )

    def below(self) -> Iterator[ReadableSpan]:
        """The spans below the root, attempt by attempt."""
        record = self._record
        since = record.began
        previous: UpstreamRecord | None = None
        for number, attempt in enumerate(sorted(record.attempts, key=attrgetter("began"))):
            if previous is not None and _gave_part(previous) and attempt.outcome != _OVERTAKEN:
                name = "migrate" if previous.outcome == _MOVED else "continue"
                until = attempt.first_byte or attempt.ended
                yield self._child(number, BETWEEN, name, (since, until), {"enginehouse.replica": attempt.replica})
            routed = (min(since, attempt.began), attempt.began)
            yield self._child(number, ROUTE, "route", routed, route_attributes(attempt))
            if _has_waited(attempt):
                yield from self._waiting(number, attempt)
            if attempt.sent:
                yield self._upstream(number, attempt)
            since, previous = attempt.ended, attempt

    def _waiting(self, number: int, attempt: UpstreamRecord) -> Iterator[ReadableSpan]:
        """The span of the time in a queue, and of the swap in that time."""
        times = (attempt.began, attempt.granted or attempt.ended)
        yield self._child(number, SCHEDULE, "schedule", times, {"enginehouse.replica": attempt.replica})
        for swap in self._record.swaps:
            if swap.target == attempt.replica and times[0] < swap.ended <= times[1]:
                status = Status() if swap.outcome == "ready" else Status(StatusCode.ERROR)
                during = (swap.began, swap.ended)
                yield self._child(number, SWAP, "swap", during, swap_attributes(swap), status=status, below=SCHEDULE)

    def _upstream(self, number: int, attempt: UpstreamRecord) -> ReadableSpan:
        failed = attempt.outcome not in ("served", _MOVED, _OVERTAKEN) or attempt.status >= _CLIENT_FAILED
        status = Status(StatusCode.ERROR, attempt.outcome) if failed else Status()
        times = (attempt.sent, attempt.ended)
        attributes = upstream_attributes(attempt, self._record.stream)
        return self._child(number, UPSTREAM, "upstream", times, attributes, kind=SpanKind.CLIENT, status=status)

    def _child(
        self,
        attempt: int,
        place: int,
        name: str,
        times: tuple[float, float],
        attributes: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        status: Status | None = None,
        below: int | None = None,
    ) -> ReadableSpan:
        """A span of an attempt, below the root or below another place of the attempt."""
        root = self._record.root
        parent = root if below is None else span_number(root, attempt, below)
        context = self._context(span_number(root, attempt, place))
        return self._span(name, context, self._context(parent), times, attributes, kind=kind, status=status or Status())

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[float, float],
        attributes: Mapping[str, Any],
        *,
        kind: SpanKind,
        status: Status,
        links: Sequence[Link] = (),
    ) -> ReadableSpan:
        began, ended = (self._epoch + int(seconds * 1e9) for seconds in times)
        return ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            links=links,
            kind=kind,
            status=status,
            start_time=began,
            end_time=max(began, ended),
            instrumentation_scope=self._scope,
        )

    def _context(self, span_id: int, trace_id: int = 0, remote: bool = False) -> SpanContext:
        return SpanContext(trace_id or self._trace_id, span_id, remote, _SAMPLED, self._state)


def _has_waited(attempt: UpstreamRecord) -> bool:
    """Whether the attempt waited in a queue. A queue that has room grants at once."""
    return attempt.queued and (not attempt.granted or attempt.granted - attempt.began >= _SHORTEST_WAIT_S)


def _gave_part(attempt: UpstreamRecord) -> bool:
    """Whether the attempt's answer has begun to reach the client, so that the next one continues it."""
    return attempt.first_byte > 0 and attempt.outcome != "answered" and attempt.status < _CLIENT_FAILED
