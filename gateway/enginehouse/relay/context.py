"""Everything that live requests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.domain.errors import RequestError, Unauthorized
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.fleet.fleet import Fleet
from enginehouse.relay.continuation.rules import ContinuationRules
from enginehouse.relay.engine_facts import EngineFacts
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.progress_reports import ProgressReports
from enginehouse.relay.live.request_record import request_record
from enginehouse.relay.retrying.hedge_delay import HedgeDelay
from enginehouse.relay.retrying.retry_budget import RetryBudget
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.filters import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.access_line import AccessEntry
from enginehouse.telemetry.counters import Counters
from enginehouse.telemetry.decisions import Decisions
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.telemetry.record import Ending
from enginehouse.telemetry.tracer import Tracer

if TYPE_CHECKING:
    from enginehouse.relay.jobs.job import Job


class RelayContext:
    """The parts of the gateway that live requests use and report to: counters, decisions and observers.

    A reload of the configuration replaces ``router``, ``filters``, ``upstreams``, ``max_retries``, ``hedging``,
    ``gather``, ``continuation``, ``engine_facts`` and the share of ``budget``. ``hedging`` is ``None`` where slow
    streams are not asked of a second replica. ``gather``: requests without a stream are relayed as streams.
    ``upstreams`` has every backend by name; ``queues`` has those that the gateway launches, and those with a limit.
    ``log_access`` writes the line of a request to the access log, if there is one.
    """

    def __init__(
        self,
        router: Router,
        fleet: Fleet,
        upstreams: dict[str, Upstream],
        *,
        max_retries: int,
        budget: RetryBudget,
        hedging: HedgeDelay | None = None,
        gather: bool = False,
        continuation: ContinuationRules,
        engine_facts: EngineFacts,
        filters: FiltersByName,
        queues: Mapping[str, HostQueue],
        progress_reports: ProgressReports,
        observers: Observers,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer | None = None,
        max_series: int = 1000,
    ) -> None:
        self.clock = clock
        self.router = router
        self.filters = filters
        self.fleet = fleet
        self.upstreams = upstreams
        self.queues = queues
        self.progress_reports = progress_reports
        self.max_retries = max_retries
        self.budget = budget
        self.hedging = hedging
        self.gather = gather
        self.tracer = tracer
        self.log_access: Callable[[AccessEntry], None] | None = None
        self.continuation = continuation
        self.engine_facts = engine_facts
        self.live: set[LiveRequest] = set()
        self.counters = Counters(max_series)
        self.decisions = Decisions(clock.epoch)
        self._on_routed = observers.callbacks("routed")
        self._on_moved = observers.callbacks("moved")
        self._on_finished = observers.callbacks("finished")

    def routed(self, request_id: bytes, requirements: Requirements, route: Route) -> None:
        """Record where a request is sent."""
        self.decisions.routed(request_id, route)
        if self._on_routed:
            notify(self._on_routed, request_id.decode(), requirements, route)

    def retried(self, backend: str) -> None:
        """Count a request that is sent again because ``backend`` failed it."""
        self.counters.retries[backend] += 1

    def moved(self, request_id: bytes, source: str, destination: str, gap: float, outcome: str) -> None:
        """Count a stream that was moved, whose client waited ``gap`` seconds for its next event."""
        self.counters.continued(destination, "moved", outcome, gap)
        if self._on_moved:
            notify(self._on_moved, request_id.decode(), source, destination, gap * 1000)

    def refused(self, request_id: bytes, requirements: Requirements | None, error: RequestError) -> None:
        """Record a request that the gateway itself answers with ``error``.

        Clients without a valid key are only counted. Otherwise they could push all other decisions out.
        """
        self.counters.refused[error.code] += 1
        if not isinstance(error, Unauthorized):
            self.decisions.refused(request_id, requirements.model if requirements else "", error)

    def ended(self, request: LiveRequest, job: Job, ending: Ending) -> None:
        """Remove a live request, whose attempts have all ended, count and trace it."""
        self.live.discard(request)
        attempts, status = request.attempts, ending.status
        last = attempts[-1] if attempts else None
        ended = last.ended if last is not None else self.clock.now()
        duration = ended - job.began
        if last is not None:
            self.counters.add(attempts, job.began, ending)
        if self.tracer is not None and (job.trace is not None or self.tracer.keeps(duration, status)):
            trace = job.trace = job.trace or self.tracer.begin_late(job.headers)
            self.tracer.add(request_record(job, trace, attempts, ended, ending))
        if self.log_access is not None:
            model = job.requirements.model if job.requirements is not None else ""
            entry = (
                self.clock.epoch(),
                job.request_id,
                job.trace_id,
                job.method,
                job.path,
                model,
                job.began,
                ended,
                attempts,
                ending,
            )
            self.log_access(entry)
        if self._on_finished:
            replica = last.route.chosen.replica if last is not None else ""
            with log_context.named(job.request_id, job.trace_id):
                notify(self._on_finished, request.request_id.decode(), replica, status, duration * 1000)
