"""All live requests: has their time limits watched, and reports those that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from enginehouse.domain.request_record import RequestRecord
from enginehouse.interfaces.accounting import RequestMeter
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import LiveRequest, each_alone
from enginehouse.relay.live.progress_reports import ProgressReports
from enginehouse.relay.live.traced_request import traced_request
from enginehouse.telemetry.plugin_failures import log_plugin_failure
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse.telemetry.request_facts import RequestFacts

WITHDRAWN: Final = "withdrawn"
"""The outcome of a request that another gateway serves and reports."""
_EVERY_S: Final = 0.1


class LiveRequests:
    """Knows the live requests, has them check their time limits every 100 ms, and reports each that has ended.

    One sweep over all requests is far cheaper than timers that are set and cancelled for each piece of an answer. A
    request that raises in it fails alone. The sweep also counts new requests for the budget of retries, sends the
    progress reports that are due, lets middleware do what is due, and has the waiting room plan: a slot may be free for
    a reason that no queue reports, such as a backend's health.

    - ``live``: those that have not ended, the oldest first, each with a number that no later one gets.
    - ``delivery``: brings records to observers.
    - ``log_access``: writes the line of a request to the access log, if there is one.
    - ``on_ended``: is called last with each job that has ended, if anybody wants that.
    """

    def __init__(self, context: RelayContext, delivery: RecordDelivery, progress_reports: ProgressReports) -> None:
        self.live: dict[LiveRequest, int] = {}
        self.log_access: Callable[[float, RequestFacts], None] | None = None
        self.on_ended: Callable[[Job, RequestRecord], None] | None = None
        self.delivery = delivery
        self._observed = delivery.callbacks
        self._context = context
        self._progress_reports = progress_reports
        self._begun = self._counted = 0
        self._next_sweep: asyncio.TimerHandle | None = None

    def begin(self, request: LiveRequest) -> None:
        """Watch ``request`` until it has ended."""
        self._begun += 1
        self.live[request] = self._begun
        if self._next_sweep is None:
            self._next_sweep = asyncio.get_running_loop().call_later(_EVERY_S, self._sweep)

    def stop(self) -> None:
        """Watch no request any more."""
        if self._next_sweep is not None:
            self._next_sweep.cancel()
            self._next_sweep = None

    def _sweep(self) -> None:
        self._next_sweep = None
        context, live = self._context, list(self.live)
        now = context.clock.now()
        if live:  # first: whatever happens below, the next sweep comes
            self._next_sweep = asyncio.get_running_loop().call_later(_EVERY_S, self._sweep)
        context.budget.count(now, self._begun - self._counted)
        self._counted = self._begun
        each_alone(live, lambda request: request.check_time(now))
        for each in (context.translation, context.interception):
            if each is not None:
                each.check_time(now)
        context.waiting_room.tick()
        self._progress_reports.send_due(self.live, now)

    def ended(
        self, job: Job, facts: RequestFacts, address: str, answer_ends: Callable[[], tuple[bytes, bytes]]
    ) -> None:
        """Report the request of ``job`` from ``address``, which has left the live ones.

        ``answer_ends``: the beginning and the end of its answer, for its trace.
        """
        context, tracer = self._context, self._context.tracer
        facts.time = at = context.clock.epoch()
        if job.trace is None and tracer is not None and tracer.keeps(facts.ended - job.began, facts.status):
            job.trace = tracer.begin_late(job.headers)
        trace = job.trace
        if trace is not None:
            facts.trace_id = trace.trace_id.decode()
        if facts.attempts:
            context.counters.add(facts)
        else:
            context.counters.end_unrouted(facts.status)
        if trace is not None and tracer is not None:
            tracer.add(traced_request(job, trace, facts.record(), answer_ends()))
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
