"""What the trace of a request is made from, once it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from enginehouse.domain.errors import shortened
from enginehouse.telemetry.exporter.messages import RequestRecord, RoutingRecord, UpstreamRecord
from enginehouse.telemetry.record import AttemptRecord, Ending

if TYPE_CHECKING:
    from enginehouse.relay.job import Job


def request_record(job: Job, attempts: Sequence[AttemptRecord], ended: float, ending: Ending) -> RequestRecord:
    """The record of the request of ``job``, which has a tracer. A request that was not sampled gets a trace now."""
    context, requirements = job.context, job.requirements
    assert context.tracer is not None
    trace = job.trace = job.trace or context.tracer.begin_late(job.headers)
    parent, link, captured = trace.parent, trace.link, trace.captured
    waited = [attempt.route.chosen.replica for attempt in attempts if attempt.queued]
    return RequestRecord(
        trace_id=trace.trace_id,
        root=trace.root,
        parent=parent.span_id if parent is not None else "",
        link=(link.trace_id, link.span_id) if link is not None else ("", ""),
        state=trace.state,
        request_id=job.request_id.decode(),
        path=job.path,
        method=job.method,
        requested=shortened(requirements.model) if requirements is not None else "",
        stream=requirements is not None and requirements.stream,
        began=job.began,
        ended=ended,
        status=ending.status,
        outcome=ending.outcome,
        message=ending.message,
        tokens=ending.tokens,
        sent_bytes=ending.sent_bytes,
        events=ending.events,
        attempts=tuple([_upstream(job, attempt) for attempt in attempts]),
        swaps=tuple([swap for swap in context.counters.last_swaps if swap.target in waited]) if waited else (),
        question=job.body if captured is not None else b"",
        answer=bytes(captured) if captured is not None else b"",
    )


def _upstream(job: Job, attempt: AttemptRecord) -> UpstreamRecord:
    route = attempt.route
    details, chosen = route.details, route.chosen
    upstream = job.context.upstreams.get(chosen.backend)
    origin = upstream.pool.origin if upstream is not None else None
    routing = RoutingRecord(
        strategy=details.strategy if details is not None else "",
        reason=route.reason.value,
        attempted=route.attempted,
        candidates=details.candidates if details is not None else 0,
        dropped=details.dropped if details is not None else {},
        score=details.score if details is not None else None,
    )
    return UpstreamRecord(
        chosen.backend,
        chosen.replica,
        chosen.model,
        f"{origin.host}:{origin.port}" if origin is not None else "",
        routing,
        attempt.outcome,
        attempt.began,
        attempt.ended,
        attempt.queued,
        attempt.granted,
        attempt.sent,
        attempt.first_byte,
        attempt.status,
    )
