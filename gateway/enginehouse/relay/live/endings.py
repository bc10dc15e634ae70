"""Ends requests: each leaves the live ones, and its record goes to all who count, log, trace or observe requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from time import perf_counter
from typing import Final

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request_record import AttemptRecord, RequestRecord
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.traced_request import traced_request
from enginehouse.telemetry.record import Tokens, first_answered
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse.telemetry.trace_context import Trace

_began: Final = attrgetter("began")
_NOTHING_SENT: Final = (0, 0, None)


class Endings:
    """Knows the live requests, and makes the record of each that ends.

    ``delivery`` brings records to observers. ``log_access`` writes the line of a request to the access log, if there is
    one.
    """

    def __init__(self, context: RelayContext, delivery: RecordDelivery) -> None:
        self.live: set[LiveRequest] = set()
        self.log_access: Callable[[RequestRecord], None] | None = None
        self.delivery = delivery
        self._context = context

    def ended(
        self,
        request: LiveRequest,
        job: Job,
        status: int,
        outcome: str,
        error: RequestError | None,
        sent: tuple[int, int, Tokens | None] = _NOTHING_SENT,
    ) -> None:
        """Remove a live request, whose attempts have all ended, and report it.

        ``sent``: the bytes, the events and the tokens of the answer, as far as the client got it.
        """
        self.live.discard(request)
        attempts = request.attempts
        ended = attempts[-1].ended if attempts else perf_counter()
        trace = self._trace(job, ended - job.began, status)
        record = _record(request, job, attempts, ended, status, outcome, error, sent, trace)
        if attempts:
            self._context.counters.add(record)
        if trace is not None and self._context.tracer is not None:
            self._context.tracer.add(traced_request(job, trace, record))
        if self.log_access is not None:
            self.log_access(record)
        self.delivery.add(record)

    def _trace(self, job: Job, seconds: float, status: int) -> Trace | None:
        """The trace of a request that is sampled, or was slow or failed."""
        tracer = self._context.tracer
        if job.trace is None and tracer is not None and tracer.keeps(seconds, status):
            job.trace = tracer.begin_late(job.headers)
        return job.trace


def _record(
    request: LiveRequest,
    job: Job,
    attempts: Sequence[AttemptRecord],
    ended: float,
    status: int,
    outcome: str,
    error: RequestError | None,
    sent: tuple[int, int, Tokens | None],
    trace: Trace | None,
) -> RequestRecord:
    caller, requirements, (sent_bytes, events, tokens) = job.caller, job.requirements, sent
    last: AttemptRecord | None = None
    routed = granted = first_sent = first_byte = None
    if len(attempts) == 1:
        last = attempts[0]
        routed, granted, first_sent, first_byte = last.began, last.granted, last.sent, last.first_byte
    elif attempts:
        last = attempts[-1]
        routed, granted, first_sent, first_byte = _steps(attempts)
    return RequestRecord(
        job.request_id.decode(),
        job.method,
        job.path,
        status,
        outcome,
        job.began,
        ended,
        caller.name if caller is not None else None,
        job.user,
        requirements.model if requirements is not None else None,
        last.model if last is not None else None,
        last.backend if last is not None else None,
        last.driver if last is not None else None,
        error.code if error is not None else None,
        error.message if error is not None else "",
        requirements is not None and requirements.stream,
        tuple(attempts),
        request.moves,
        routed,
        granted,
        first_sent,
        first_byte,
        tokens.input if tokens is not None else None,
        tokens.cached if tokens is not None else None,
        tokens.output if tokens is not None else None,
        job.received,
        sent_bytes,
        events,
        trace.trace_id.decode() if trace is not None else None,
    )


def _steps(attempts: Sequence[AttemptRecord]) -> tuple[float, float | None, float | None, float | None]:
    """When several attempts were first routed, granted and sent, and when the answer began that the client got."""
    in_order = sorted(attempts, key=_began)
    granted = [each.granted for each in in_order if each.granted is not None]
    sent = [each.sent for each in in_order if each.sent is not None]
    return (
        in_order[0].began,
        granted[0] if granted else None,
        sent[0] if sent else None,
        first_answered(attempts).first_byte,
    )
