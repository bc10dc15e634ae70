"""The spans of one request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.trace import SpanKind, TraceState

from enginehouse import AttemptRecord
from enginehouse.records import UPSTREAM_SPAN, StreamGap, TracedRequest, span_number
from enginehouse_otlp.operations import root_name
from enginehouse_otlp.process.attributes import (
    decision_attributes,
    gap_attributes,
    root_attributes,
    root_error,
    route_attributes,
    swap_attributes,
    upstream_attributes,
    upstream_error,
)

_SHORTEST_WAIT_S = 0.001
_ROUTE, _SCHEDULE, _SWAP, _BETWEEN = 0, 1, 2, 4
"""The places of the spans of one attempt, beside that of the call to its engine."""


class SpanId(NamedTuple):
    """The ids of a span and of its trace. ``remote``: the span is the client's."""

    trace: int
    span: int
    remote: bool = False


class SpanEvent(NamedTuple):
    """A moment of a span, in nanoseconds of the day."""

    name: str
    at: int
    attributes: Mapping[str, Any] = {}


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
    events: tuple[SpanEvent, ...] = ()


def spans(request: TracedRequest, epoch_ns: int) -> Sequence[Span]:
    """A request's own span, and those below it. ``epoch_ns``: when its clock was 0, in nanoseconds of the day."""
    trace = _RequestTrace(request, epoch_ns)
    return [trace.root(), *trace.below()]


class _RequestTrace:
    """The trace of one request. All spans are within its own, and none is shorter than a nanosecond."""

    def __init__(self, request: TracedRequest, epoch_ns: int) -> None:
        self._request = request
        self._record = record = request.record
        self._epoch = epoch_ns
        self._trace_id = int(request.trace_id, 16)
        state = request.state.decode("latin-1")
        self._state = TraceState.from_header([state]).to_header() if state else ""
        self._root = SpanId(self._trace_id, request.root)
        self._began = self._at(record.arrived)
        self._ended = max(self._began + 1, self._at(record.ended))

    def root(self) -> Span:
        request, record = self._request, self._record
        (link_trace, link_span), error = request.link, root_error(record)
        return Span(
            root_name(request),
            self._root,
            SpanId(self._trace_id, int(request.parent, 16), remote=True) if request.parent else None,
            self._began,
            self._ended,
            root_attributes(request),
            SpanKind.SERVER,
            error[1] if error is not None else None,
            SpanId(int(link_trace, 16), int(link_span, 16)) if link_trace else None,
            self._state,
            tuple(self._moves()),
        )

    def below(self) -> Iterator[Span]:
        """The spans below the root, attempt by attempt."""
        refused = self._request.refused
        if refused is not None and refused.began is not None:
            times, error = (refused.began, self._record.ended), root_error(self._record)
            attributes = decision_attributes(refused) | ({"error.type": error[0]} if error is not None else {})
            yield self._child(0, _ROUTE, "route", times, attributes, error=error[1] if error is not None else None)
        before = self._record.arrived
        for number, (attempt, address) in enumerate(self._in_order()):
            if (gap := attempt.gap) is not None:
                yield self._continued(number, attempt, gap)
            if (since := _routed_since(attempt, before)) is not None:
                times = (since, attempt.began)
                yield self._child(number, _ROUTE, "route", times, route_attributes(attempt))
            if _has_waited(attempt):
                yield from self._waiting(number, attempt)
            if attempt.sent is not None:
                yield self._upstream(number, attempt, address, attempt.sent)
            before = attempt.ended

    def _in_order(self) -> Sequence[tuple[AttemptRecord, str]]:
        """The attempts with the addresses of their engines, as they began."""
        return sorted(zip(self._record.attempts, self._request.addresses, strict=True), key=lambda each: each[0].began)

    def _moves(self) -> Iterator[SpanEvent]:
        for attempt in self._record.attempts:
            if (gap := attempt.gap) is not None:
                name = "moved" if gap.planned else "continued"
                yield SpanEvent(name, self._within(gap.ended), gap_attributes(attempt, gap))

    def _continued(self, number: int, attempt: AttemptRecord, gap: StreamGap) -> Span:
        name = "migrate" if gap.planned else "continue"
        return self._child(number, _BETWEEN, name, (gap.began, gap.ended), gap_attributes(attempt, gap))

    def _waiting(self, number: int, attempt: AttemptRecord) -> Iterator[Span]:
        """The span of the time in a queue, and of the swap in that time, as far as the request waited for it."""
        times = (attempt.began, attempt.granted or attempt.ended)
        yield self._child(number, _SCHEDULE, "schedule", times, {"enginehouse.replica": attempt.replica})
        for swap in self._request.swaps:
            if swap.target == attempt.replica and times[0] < swap.ended <= times[1]:
                error = None if swap.outcome == "ready" else ""
                during = (max(swap.began, times[0]), swap.ended)
                yield self._child(number, _SWAP, "swap", during, swap_attributes(swap), error=error, below=_SCHEDULE)

    def _upstream(self, number: int, attempt: AttemptRecord, address: str, sent: float) -> Span:
        error, record = upstream_error(attempt), self._record
        answered = attempt is record.attempts[-1] and attempt.first_byte is not None
        events: tuple[SpanEvent, ...] = ()
        if record.stream and attempt.first_byte is not None:
            events = (SpanEvent("first_chunk", self._within(attempt.first_byte)),)
        return self._child(
            number,
            UPSTREAM_SPAN,
            "upstream",
            (sent, attempt.ended),
            upstream_attributes(self._request, attempt, address, answered=answered),
            kind=SpanKind.CLIENT,
            error=error[1] if error is not None else None,
        )._replace(events=events)

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
        began = min(self._within(times[0]), self._ended - 1)
        ended = max(began + 1, self._within(times[1]))
        own = SpanId(trace, span_number(root, attempt, place))
        return Span(name, own, parent, began, ended, attributes, kind, error, state=self._state)

    def _at(self, time: float) -> int:
        return self._epoch + int(time * 1e9)

    def _within(self, time: float) -> int:
        """A time in nanoseconds of the day, within the request's own span."""
        return min(max(self._at(time), self._began), self._ended)


def _routed_since(attempt: AttemptRecord, before: float) -> float | None:
    """When the decision for ``attempt`` began; ``before``: at the earliest, if only that is known.

    ``None`` if nobody decided again: the stream was moved, or a rival was asked while nothing was recorded.
    """
    if attempt.details is not None and attempt.details.began is not None:
        return attempt.details.began
    return before if attempt.gap is None and before <= attempt.began else None


def _has_waited(attempt: AttemptRecord) -> bool:
    """Whether the attempt waited in a queue. A queue that has room grants at once."""
    return attempt.queued and (attempt.granted is None or attempt.granted - attempt.began >= _SHORTEST_WAIT_S)
