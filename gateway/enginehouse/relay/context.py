"""Everything that live requests share."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.domain.errors import RequestError, Unauthorized
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.fleet.fleet import Fleet
from enginehouse.relay.continuation.rules import ContinuationRules
from enginehouse.relay.engine_facts import EngineFacts
from enginehouse.relay.retrying.hedge_delay import HedgeDelay
from enginehouse.relay.retrying.retry_budget import RetryBudget
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.body_filters import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.counters import Counters
from enginehouse.telemetry.decisions import Decisions
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.telemetry.tracer import Tracer


class RelayContext:
    """The parts of the gateway that live requests use and report to: counters, decisions and observers.

    A reload of the configuration replaces ``router``, ``filters``, ``upstreams``, ``max_retries``, ``hedging``,
    ``gather``, ``continuation``, ``engine_facts`` and the share of ``budget``.

    - ``hedging``: ``None`` where slow streams are not asked of a second replica.
    - ``gather``: requests without a stream are relayed as streams.
    - ``upstreams``: every backend, by name.
    - ``queues``: those of the backends that the gateway launches, and of those with a limit.
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
        self.max_retries = max_retries
        self.budget = budget
        self.hedging = hedging
        self.gather = gather
        self.tracer = tracer
        self.continuation = continuation
        self.engine_facts = engine_facts
        self.counters = Counters(max_series)
        self.decisions = Decisions(clock.epoch)
        self._on_routed = observers.callbacks("routed")
        self._on_moved = observers.callbacks("moved")

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
