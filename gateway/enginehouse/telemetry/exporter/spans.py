"""The spans of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.trace import SpanKind, TraceState

from enginehouse.domain.request_record import AttemptRecord
from enginehouse.telemetry.exporter.attributes import (
    root_attributes,
    root_name,
    route_attributes,
    swap_attributes,
    upstream_attributes,
)
from enginehouse.telemetry.exporter.messages import TracedRequest
from enginehouse.telemetry.trace_context import BETWEEN, ROUTE, SCHEDULE, SWAP, UPSTREAM, span_number

_SERVER_FAILED, _CLIENT_FAILED = 500, 400
_SHORTEST_WAIT_S = 0.001
_MOVED = "moved"
"""The outcome of an attempt whose stream was moved elsewhere on purpose."""
_OVERTAKEN = "overtaken"
"""The outcome of an attempt whose rival was first to begin."""


class SpanId(NamedTuple):
    """The ids of a span and of its trace. ``remote``: the span is the client's."""

    trace: int
    span: int
    remote: bool = False


class Span(NamedTuple):
    """A span that has ended. Times are in nanoseconds of the day.

    ``error``: what failed, possibly without a word; ``None`` if nothing did. ``state``: the trace's ``tracestate``.
    """

    name: str
    id: SpanId
    parent: SpanId | None
    began: int
    ended: int
    attributes: Mapping[str, Any]
    kind: SpanKind = SpanKind.INTERNAL
    error: str | None = None
    link: SpanId | None = None
    state: str = ""


def spans(request: TracedRequest, epoch_ns: int) -> Sequence[Span]:
    """A request's own span, and those below it. ``epoch_ns``: when its clock was 0, in nanoseconds of the day."""
    trace = _RequestTrace(request, epoch_ns)
    return [trace.root(), *trace.below()]


class _RequestTrace:
    """The trace of one request."""

    def __init__(self, request: TracedRequest, epoch_ns: int) -> None:
        self._request = request
        self._record = request.record
        self._epoch = epoch_ns
        self._trace_id = int(request.trace_id, 16)
        state = request.state.decode("latin-1")
        self._state = TraceState.from_header([state]).to_header() if state else ""
        self._root = SpanId(self._trace_id, request.root)

    def root(self) -> Span:
        request, record = self._request, self._record
        (link_trace, link_span), failed = request.link, record.status >= _SERVER_FAILED
        began, ended = self._during(record.arrived, record.ended)
        return Span(
            root_name(record),
            self._root,
            SpanId(self._trace_id, int(request.parent, 16), remote=True) if request.parent else None,
            began,
            ended,
            root_attributes(request),
            SpanKind.SERVER,
            record.message if failed else None,
            SpanId(int(link_trace, 16), int(link_span, 16)) if link_trace else None,
            self._state,
        )

    def below(self) -> Iterator[Span]:
        """The spans below the root, attempt by attempt."""
        since = self._record.arrived
        previous: AttemptRecord | None = None
        for number, (attempt, address) in enumerate(self._in_order()):
            if previous is not None and _gave_part(previous) and attempt.outcome != _OVERTAKEN:
                name = "migrate" if previous.outcome == _MOVED else "continue"
                until = attempt.first_byte or attempt.ended
                yield self._child(number, BETWEEN, name, (since, until), {"enginehouse.replica": attempt.replica})
            routed = (min(since, attempt.began), attempt.began)
            yield self._child(number, ROUTE, "route", routed, route_attributes(attempt))
            if _has_waited(attempt):
                yield from self._waiting(number, attempt)
            if attempt.sent is not None:
                yield self._upstream(number, attempt, address, attempt.sent)
            since, previous = attempt.ended, attempt

    def _in_order(self) -> Sequence[tuple[AttemptRecord, str]]:
        """The attempts with the addresses of their engines, as they began."""
        return sorted(zip(self._record.attempts, self._request.addresses, strict=True), key=lambda each: each[0].began)

    def _waiting(self, number: int, attempt: AttemptRecord) -> Iterator[Span]:
        """The span of the time in a queue, and of the swap in that time."""
        times = (attempt.began, attempt.granted or attempt.ended)
        yield self._child(number, SCHEDULE, "schedule", times, {"enginehouse.replica": attempt.replica})
        for swap in self._request.swaps:
            if swap.target == attempt.replica and times[0] < swap.ended <= times[1]:
                error = None if swap.outcome == "ready" else ""
                during = (swap.began, swap.ended)
                yield self._child(number, SWAP, "swap", during, swap_attributes(swap), error=error, below=SCHEDULE)

    def _upstream(self, number: int, attempt: AttemptRecord, address: str, sent: float) -> Span:
        failed = attempt.outcome not in ("served", _MOVED, _OVERTAKEN) or attempt.status >= _CLIENT_FAILED
        error = attempt.outcome if failed else None
        times = (sent, attempt.ended)
        attributes = upstream_attributes(attempt, address, self._record.stream)
        return self._child(number, UPSTREAM, "upstream", times, attributes, kind=SpanKind.CLIENT, error=error)

    def _child(
        self,
        attempt: int,
        place: int,
        name: str,
        times: tuple[float, float],
        attributes: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        error: str | None = None,
        below: int | None = None,
    ) -> Span:
        """A span of an attempt, below the root or below another place of the attempt."""
        trace, root = self._trace_id, self._root.span
        parent = self._root if below is None else SpanId(trace, span_number(root, attempt, below))
        began, ended = self._during(*times)
        own = SpanId(trace, span_number(root, attempt, place))
        return Span(name, own, parent, began, ended, attributes, kind, error, state=self._state)

    def _during(self, began: float, ended: float) -> tuple[int, int]:
        """Both times in nanoseconds of the day, in order."""
        first = self._epoch + int(began * 1e9)
        return first, max(first, self._epoch + int(ended * 1e9))


def _has_waited(attempt: AttemptRecord) -> bool:
    """Whether the attempt waited in a queue. A queue that has room grants at once."""
    return attempt.queued and (attempt.granted is None or attempt.granted - attempt.began >= _SHORTEST_WAIT_S)


def _gave_part(attempt: AttemptRecord) -> bool:
    """Whether the attempt's answer has begun to reach the client, so that the next one continues it."""
    return attempt.first_byte is not None and attempt.outcome != "answered" and attempt.status < _CLIENT_FAILED
