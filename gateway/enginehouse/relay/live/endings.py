"""Ends requests: each leaves the live ones, and its record goes to all who count, log, trace or observe requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request_record import RequestRecord
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.traced_request import traced_request
from enginehouse.telemetry.answer_meter import NO_ANSWER, AnswerSize
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse.telemetry.request_facts import RequestFacts
from enginehouse.telemetry.trace_context import Trace
from enginehouse.telemetry.usage_meter import UsageMeter

CLIENT_LEFT: Final = 499
"""nginx's status for its log, if the client has left: it sees none."""
WITHDRAWN: Final = "withdrawn"


class Endings:
    """Sums up each live request that ends.

    ``live``: those that have not, the oldest first, each with a number that no later one gets.
    ``delivery`` brings records to observers. ``log_access`` writes the line of a request to the access log, if there is
    one. ``on_ended`` is called last with each job that has ended, if anybody wants that.
    """

    def __init__(self, context: RelayContext, delivery: RecordDelivery) -> None:
        self.live: dict[LiveRequest, int] = {}
        self.log_access: Callable[[float, RequestFacts], None] | None = None
        self.on_ended: Callable[[Job, RequestRecord], None] | None = None
        self.delivery = delivery
        self._observed = delivery.callbacks
        self._context = context

    def ended(
        self,
        request: LiveRequest,
        status: int,
        outcome: str,
        error: RequestError | None,
        answer: AnswerSize = NO_ANSWER,
    ) -> None:
        """Remove a live request, whose attempts have all ended, and report it.

        A ``WITHDRAWN`` one is served and reported by another gateway.
        """
        self.live.pop(request, None)
        if outcome == WITHDRAWN:
            return
        context, job = self._context, request.job
        facts = _facts(request, status, outcome, error, answer)
        trace = self._trace(job, facts.ended - job.began, status)
        if trace is not None:
            facts.trace_id = trace.trace_id.decode()
        if facts.attempts:
            context.counters.add(facts)
        else:
            context.counters.end_unrouted(status)
        if trace is not None and context.tracer is not None:
            context.tracer.add(traced_request(job, trace, facts.record(), request.answer_ends()))
        at = context.clock.epoch()
        if self.log_access is not None:
            self.log_access(at, facts)
        context.activity.add(at, facts, job.headers, request.address)
        if context.usage is not None:
            self._add_usage(context.usage, facts, job)
        if self._observed:
            self.delivery.add(facts.record())
        if self.on_ended is not None:
            self.on_ended(job, facts.record())

    def _add_usage(self, usage: UsageMeter, facts: RequestFacts, job: Job) -> None:
        """Add the request to what its caller has used."""
        needs, model = job.requirements, facts.model
        if model is None:
            asked = facts.asked or ""
            model = asked if asked and self._context.fleet.snapshot.candidates(asked) else ""
        usage.add(facts, model, needs.estimated_tokens if needs is not None else 0)

    def _trace(self, job: Job, seconds: float, status: int) -> Trace | None:
        """The trace of a request that is sampled, or was slow or failed."""
        tracer = self._context.tracer
        if job.trace is None and tracer is not None and tracer.keeps(seconds, status):
            job.trace = tracer.begin_late(job.headers)
        return job.trace


def _facts(
    request: LiveRequest, status: int, outcome: str, error: RequestError | None, answer: AnswerSize
) -> RequestFacts:
    """What is known of a request, but for its trace."""
    facts, job, attempts = RequestFacts(), request.job, request.attempts
    requirements = job.requirements
    facts.id, facts.method, facts.path = job.request_id.decode(), job.method, job.path
    facts.status, facts.outcome = status, outcome
    facts.arrived, facts.bytes_in = job.began, job.received
    facts.caller, facts.user = job.key, job.user
    facts.moves = request.moves
    if requirements is not None:
        facts.asked, facts.stream = requirements.model, requirements.stream
    if error is not None:
        facts.code, facts.message = error.code, error.message
    if attempts:
        facts.sum_up(attempts)
    else:
        facts.attempts, facts.ended = attempts, job.context.clock.now()
    facts.bytes_out, facts.events, tokens = answer
    if tokens is not None:
        facts.tokens_in, facts.tokens_cached, facts.tokens_out = tokens.input, tokens.cached, tokens.output
        facts.timings = tokens.timings
    return facts
