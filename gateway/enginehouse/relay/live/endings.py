"""Ends requests: each leaves the live ones, and its record goes to all who count, log, trace or observe requests."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request_record import RequestRecord
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.traced_request import traced_request
from enginehouse.telemetry.attempts_summary import AttemptsSummary
from enginehouse.telemetry.record import NO_ANSWER, AnswerSize
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse.telemetry.trace_context import Trace
from enginehouse.telemetry.usage_meter import UsageMeter


class Endings:
    """Knows the live requests, the oldest first, and makes the record of each that ends.

    ``delivery`` brings records to observers. ``log_access`` writes the line of a request to the access log, if there is
    one. ``on_ended`` is called last with each job that has ended, if anybody wants that.
    """

    def __init__(self, context: RelayContext, delivery: RecordDelivery) -> None:
        self.live: dict[LiveRequest, None] = {}
        self.log_access: Callable[[float, RequestRecord], None] | None = None
        self.on_ended: Callable[[Job, RequestRecord], None] | None = None
        self.delivery = delivery
        self._observed = delivery.callbacks
        self._context = context

    def ended(
        self,
        request: LiveRequest,
        job: Job,
        status: int,
        outcome: str,
        error: RequestError | None,
        answer: AnswerSize = NO_ANSWER,
    ) -> None:
        """Remove a live request, whose attempts have all ended, and report it."""
        self.live.pop(request, None)
        context, attempts = self._context, request.attempts
        summary = AttemptsSummary(attempts) if attempts else None
        ended = summary.ended if summary is not None else context.clock.now()
        trace = self._trace(job, ended - job.began, status)
        record = _record(request, job, status, outcome, error, ended, summary, answer, trace)
        if summary is not None:
            context.counters.add(record, summary)
        else:
            context.counters.unrouted += 1
        if trace is not None and context.tracer is not None:
            context.tracer.add(traced_request(job, trace, record, request.answer_ends()))
        at = context.clock.epoch()
        if self.log_access is not None:
            self.log_access(at, record)
        context.activity.add(at, record, job.headers, request.address)
        if context.usage is not None:
            self._add_usage(context.usage, record, job)
        if self._observed:
            self.delivery.add(record)
        if self.on_ended is not None:
            self.on_ended(job, record)

    def withdrawn(self, request: LiveRequest) -> None:
        """Remove a live request, which another gateway will serve and report."""
        self.live.pop(request, None)

    def _add_usage(self, usage: UsageMeter, record: RequestRecord, job: Job) -> None:
        """Add the request to what its caller has used."""
        needs, model = job.requirements, record.model
        if model is None:
            asked = record.asked or ""
            model = asked if asked and self._context.fleet.snapshot.candidates(asked) else ""
        usage.add(record, model, needs.estimated_tokens if needs is not None else 0)

    def _trace(self, job: Job, seconds: float, status: int) -> Trace | None:
        """The trace of a request that is sampled, or was slow or failed."""
        tracer = self._context.tracer
        if job.trace is None and tracer is not None and tracer.keeps(seconds, status):
            job.trace = tracer.begin_late(job.headers)
        return job.trace


def _record(
    request: LiveRequest,
    job: Job,
    status: int,
    outcome: str,
    error: RequestError | None,
    ended: float,
    attempts: AttemptsSummary | None,
    answer: AnswerSize,
    trace: Trace | None,
) -> RequestRecord:
    requirements = job.requirements
    bytes_out, events, tokens = answer
    return RequestRecord(
        job.request_id.decode(),
        job.method,
        job.path,
        status,
        outcome,
        job.began,
        ended,
        job.key,
        job.user,
        requirements.model if requirements is not None else None,
        attempts.model if attempts is not None else None,
        attempts.backend if attempts is not None else None,
        attempts.driver if attempts is not None else None,
        error.code if error is not None else None,
        error.message if error is not None else "",
        requirements is not None and requirements.stream,
        tuple(request.attempts),
        request.moves,
        attempts.routed if attempts is not None else None,
        attempts.granted if attempts is not None else None,
        attempts.sent if attempts is not None else None,
        attempts.first_byte if attempts is not None else None,
        tokens.input if tokens is not None else None,
        tokens.cached if tokens is not None else None,
        tokens.output if tokens is not None else None,
        job.received,
        bytes_out,
        events,
        trace.trace_id.decode() if trace is not None else None,
        tokens.timings if tokens is not None else None,
    )
