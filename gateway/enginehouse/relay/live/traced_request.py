"""Makes the message from which the trace of an ended request is made."""

from __future__ import annotations

from collections.abc import Iterable

from enginehouse.domain.errors import shortened
from enginehouse.domain.request_record import RequestRecord
from enginehouse.interfaces.exporters import SwapRecord, TracedRequest
from enginehouse.relay.jobs.job import Job
from enginehouse.telemetry.request_parameters import request_parameters
from enginehouse.telemetry.trace_context import MOST_CAPTURED, Trace


def traced_request(job: Job, trace: Trace, record: RequestRecord, ends: tuple[bytes, bytes]) -> TracedRequest:
    """The request of ``job``, which has ended, with its ``trace``; ``ends``: of the answer."""
    parent, link, captured = trace.parent, trace.link, trace.captured
    return TracedRequest(
        trace.trace_id,
        trace.root,
        parent.span_id if parent is not None else b"",
        (link.trace_id, link.span_id) if link is not None else (b"", b""),
        trace.state,
        record,
        tuple([_address(job, attempt.backend) for attempt in record.attempts]),
        swaps_of(record, job.context.counters.last_swaps),
        job.body if captured is not None and len(job.body) <= MOST_CAPTURED else b"",
        bytes(captured) if captured is not None else b"",
        _known_model(job, record),
        trace.refused,
        b"" if job.raw else request_parameters(job.body),
        (b"", b"") if job.raw else ends,
    )


def _known_model(job: Job, record: RequestRecord) -> str:
    """The model that the client asked for, or else the one that served it; empty if the gateway knows neither."""
    context, asked = job.context, record.asked
    if asked is not None and (context.router.names(asked) or context.fleet.snapshot.candidates(asked)):
        return shortened(asked)
    return shortened(record.model or "")


def _address(job: Job, backend: str) -> str:
    """Its URL; empty if a reload has removed the backend, or its engine does not run."""
    upstream = job.context.upstreams.get(backend)
    return upstream.pool.address if upstream is not None else ""


def swaps_of(record: RequestRecord, swaps: Iterable[SwapRecord]) -> tuple[SwapRecord, ...]:
    """Those of the last ``swaps`` that the request waited for."""
    waited = [attempt.replica for attempt in record.attempts if attempt.queued]
    return tuple([swap for swap in swaps if swap.target in waited]) if waited else ()
