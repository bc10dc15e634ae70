"""Makes the record from which the trace of an ended request is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from enginehouse.domain.errors import shortened
from enginehouse.telemetry.exporter.messages import RawRecord
from enginehouse.telemetry.record import AttemptRecord, Ending
from enginehouse.telemetry.trace_context import MOST_CAPTURED, Trace

if TYPE_CHECKING:
    from enginehouse.relay.jobs.job import Job


def request_record(
    job: Job, trace: Trace, attempts: Sequence[AttemptRecord], ended: float, ending: Ending
) -> RawRecord:
    """The fields of the ``RequestRecord`` of the request of ``job``."""
    requirements, captured = job.requirements, trace.captured
    parent, link = trace.parent, trace.link
    return (
        trace.trace_id,
        trace.root,
        parent.span_id if parent is not None else b"",
        (link.trace_id, link.span_id) if link is not None else (b"", b""),
        trace.state,
        job.request_id,
        job.path,
        job.method,
        shortened(requirements.model) if requirements is not None else "",
        requirements is not None and requirements.stream,
        job.began,
        ended,
        ending,
        [_upstream_record(job, attempt) for attempt in attempts],
        _swaps(job, attempts),
        job.body if captured is not None and len(job.body) <= MOST_CAPTURED else b"",
        bytes(captured) if captured is not None else b"",
    )


def _upstream_record(job: Job, attempt: AttemptRecord) -> RawRecord:
    """The fields of the ``UpstreamRecord`` of ``attempt``."""
    route = attempt.route
    chosen = route.chosen
    upstream = job.context.upstreams.get(chosen.backend)
    return (
        chosen.backend,
        chosen.replica,
        chosen.model,
        upstream.pool.address if upstream is not None else "",
        route.reason._value_,  # .value takes 0.2 us in Python 3.10
        route.attempted,
        route.details,
        attempt.outcome,
        attempt.began,
        attempt.ended,
        attempt.queued,
        attempt.granted,
        attempt.sent,
        attempt.first_byte,
        attempt.status,
    )


def _swaps(job: Job, attempts: Sequence[AttemptRecord]) -> RawRecord:
    """The last swaps of replicas that the request waited for."""
    waited = [attempt.route.chosen.replica for attempt in attempts if attempt.queued]
    return tuple([swap for swap in job.context.counters.last_swaps if swap.target in waited]) if waited else ()
