"""Brings the records of requests that have ended to all who count, log, trace or observe requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginehouse.domain.request_record import RequestRecord
from enginehouse.interfaces.accounting import RequestMeter
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.traced_request import traced_request
from enginehouse.telemetry.plugin_failures import log_plugin_failure
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse.telemetry.request_facts import RequestFacts
from enginehouse.telemetry.trace_context import Trace

WITHDRAWN: Final = "withdrawn"
"""The outcome of a request that another gateway serves and reports."""


class Endings:
    """Knows the live requests, and reports each that has ended.

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
        self, job: Job, facts: RequestFacts, address: str, answer_ends: Callable[[], tuple[bytes, bytes]]
    ) -> None:
        """Report the request of ``job`` from ``address``, which has left the live ones.

        ``answer_ends``: the beginning and the end of its answer, for its trace.
        """
        context = self._context
        facts.time = at = context.clock.epoch()
        trace = self._trace(job, facts.ended - job.began, facts.status)
        if trace is not None:
            facts.trace_id = trace.trace_id.decode()
        if facts.attempts:
            context.counters.add(facts)
        else:
            context.counters.end_unrouted(facts.status)
        if trace is not None and context.tracer is not None:
            context.tracer.add(traced_request(job, trace, facts.record(), answer_ends()))
        if self.log_access is not None:
            self.log_access(at, facts)
        context.activity.add(at, facts, job.headers, address)
        if context.usage is not None:
            self._add_usage(context.usage, facts, job)
        if self._observed:
            self.delivery.add(facts.record())
        if self.on_ended is not None:
            self.on_ended(job, facts.record())

    def _add_usage(self, usage: RequestMeter, facts: RequestFacts, job: Job) -> None:
        """Add the request to what its caller has used."""
        needs, model = job.requirements, facts.model
        if model is None:
            asked = facts.asked or ""
            model = asked if asked and self._context.fleet.snapshot.candidates(asked) else ""
        try:
            usage.add(facts, model, needs.estimated_tokens if needs is not None else 0)
        except BaseException as error:
            log_plugin_failure(self._context.counted_by, "failed to add a request to the usage", error)

    def _trace(self, job: Job, seconds: float, status: int) -> Trace | None:
        """The trace of a request that is sampled, or was slow or failed."""
        tracer = self._context.tracer
        if job.trace is None and tracer is not None and tracer.keeps(seconds, status):
            job.trace = tracer.begin_late(job.headers)
        return job.trace
