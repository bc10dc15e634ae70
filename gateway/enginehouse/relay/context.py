"""Everything that live requests share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from enginehouse.aio.clock import Clock
from enginehouse.config.schema import Config
from enginehouse.domain.errors import RequestError, Unauthorized
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, ReplicaState
from enginehouse.domain.request_facts import Activity, Decisions
from enginehouse.domain.requirements import Requirements
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.accounting import ClientAddresses, RequestMeter
from enginehouse.interfaces.continuers import Continuer, NewShare
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.protocols import ClientProtocol
from enginehouse.interfaces.schedulers import CallerTurns
from enginehouse.relay.answers.engine_error import retry_after
from enginehouse.relay.engine_facts import EngineFacts
from enginehouse.relay.engine_memory import EngineMemory, EngineShare
from enginehouse.relay.events.stream_form import forms_with
from enginehouse.relay.middleware import Middleware
from enginehouse.relay.retries import HedgeDelay, RetryBudget
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.relay.web_socket_server import WebSocketServer
from enginehouse.routing.body.rewrite import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.request_queue import RequestQueue
from enginehouse.scheduling.waiting_room import WaitingRoom
from enginehouse.telemetry.counters import Counters
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.telemetry.tracer import Tracer

_OPENAI: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})
"""What every engine serves."""


class RelayContext:
    """The parts of the gateway that live requests use and report to: counters, decisions, activity and observers.

    ``app.build_relay`` sets the fields of the class when the gateway is built. A reload of the configuration replaces
    them, ``router``, ``upstreams`` and the share of ``budget``.

    - ``config``: the configuration in force.
    - ``endpoints``: the paths that engines serve themselves, by backend, as its driver says. ``protocols`` translate
      others, by path.
    - ``hedging``: ``None`` where slow streams are not asked of a second replica.
    - ``gather``: requests without a stream are relayed as streams.
    - ``heartbeat``: the seconds of silence after which a stream gets a ping; 0 for none.
    - ``hash_users``: end users are known by hashes of their names.
    - ``upstreams``: every backend, by name. ``drivers``: theirs.
    - ``engine_memory``: what is held of engines' answers. ``continuation_share``, ``gathered_share``: in it.
    - ``continuer``: keeps streams, so that another engine can go on with them; ``None`` if no plugin does.
    - ``turns``: gives requests their turns, if the scheduler wants that, with its plugin.
    - ``waiting_room``: the requests that wait for a model.
    - ``translation``: asks protocols. ``interception``: asks interceptors, if there are any, guards among them.
    - ``web_sockets``: the plugin that serves them; ``None`` if none does.
    - ``addresses``: the limits of client addresses, if there are any.
    - ``usage``: sums up what callers use, if that is kept. ``asks_usage``: engines are asked for that of streams.
    - ``counted_by``: the plugin that counts requests, for its failures.
    - ``on_routed``: the observers of routes.
    - ``queues``: those of the backends that the gateway launches, and of those with a limit.
    """

    config: Config
    hedging: HedgeDelay | None
    gather: bool
    heartbeat: float
    hash_users: bool
    drivers: Mapping[str, DriverSupport]
    engine_facts: EngineFacts
    endpoints: Mapping[str, Collection[str]]
    filters: FiltersByName

    def __init__(
        self,
        router: Router,
        fleet: Fleet,
        upstreams: dict[str, Upstream],
        *,
        queues: Mapping[str, RequestQueue],
        observers: Observers,
        clock: Clock,
        max_series: int,
        protocols: Mapping[str, ClientProtocol],
        engine_memory: EngineMemory,
        continuer: Continuer | None,
        waiting_room: WaitingRoom,
        turns: tuple[PluginId, CallerTurns] | None,
    ) -> None:
        self.router = router
        self.fleet = fleet
        self.upstreams = upstreams
        self.queues = queues
        self.clock = clock
        self.tracer: Tracer | None = None
        self.protocols = protocols
        self.form = forms_with(protocols)
        self.engine_memory = engine_memory
        self.continuer = continuer
        self.continuation_share: NewShare = partial(EngineShare, engine_memory, "continuation")
        self.gathered_share: NewShare = partial(EngineShare, engine_memory, "gathered")
        self.waiting_room = waiting_room
        self.turns = turns
        self.hedging = None
        self.budget = RetryBudget(0.0)
        self.counters = Counters(max_series)
        self.decisions = Decisions(clock.epoch)
        self.activity = Activity()
        self.usage: RequestMeter | None = None
        self.asks_usage = False
        self.counted_by = PluginId("authenticator", "")
        self.addresses: ClientAddresses | None = None
        self.translation: Middleware | None = None
        self.interception: Middleware | None = None
        self.web_sockets: tuple[PluginId, WebSocketServer] | None = None
        self.on_routed = observers.callbacks("routed")
        self._on_moved = observers.callbacks("moved")

    def queue_of(self, candidate: Candidate) -> RequestQueue | None:
        """The queue that decides when ``candidate`` gets a request; ``None`` if it may at once."""
        return None if candidate.proxied else self.queues.get(candidate.backend)

    def is_not_loaded(self, backend: str, status: int, answer: bytes) -> bool:
        """Whether the driver reads in an answer of ``backend`` that the model is not loaded."""
        driver = self.drivers.get(backend)
        if driver is None or driver.loading is None:
            return False
        try:
            return driver.loading.is_not_loaded(status, answer)
        except RequestError:  # the plugin's, which the log has
            return False

    def asked_for_pause(self, backend: str, lines: bytes) -> None:
        """Send requests elsewhere for as long as ``backend`` asks for in the ``lines`` of its 429 or 503."""
        seconds = retry_after(lines, self.clock.epoch())
        if seconds:
            self.fleet.leave_alone(backend, seconds)

    def knows_model(self, name: str) -> bool:
        """Whether requests may name this model."""
        return self.router.others.knows(name) or bool(self.fleet.snapshot.candidates(name))

    def is_ready(self, model: str) -> bool:
        """Whether an engine has ``model`` loaded."""
        return any(each.state is ReplicaState.READY for each in self.fleet.snapshot.candidates(model))

    def native(self, path: str, model: str) -> Sequence[str]:
        """The backends that may serve ``model``, if every replica there has ``path``; else none."""
        snapshot = self.fleet.snapshot
        names = (model, *[each.model for each in self.router.others.of(model, snapshot)])
        candidates = [each for name in names for each in snapshot.candidates(name)]
        return [each.backend for each in candidates] if all(self._has(path, each) for each in candidates) else ()

    def _has(self, path: str, candidate: Candidate) -> bool:
        settings = self.config.models.get(candidate.model)
        declared = settings.endpoints if settings is not None else None
        return path in _OPENAI or path in (self.endpoints.get(candidate.backend, ()) if declared is None else declared)

    def moved(self, request_id: bytes, source: str, destination: str, gap: float, outcome: str) -> None:
        """Count a stream that was moved, whose client waited ``gap`` seconds for its next event."""
        self.counters.continued(destination, "moved", outcome, gap)
        if self._on_moved:
            notify(self._on_moved, request_id.decode(), source, destination, gap * 1000)

    def refused(
        self, request_id: bytes, caller: str | None, requirements: Requirements | None, error: RequestError
    ) -> None:
        """Record a request that the gateway itself answers with ``error``.

        Clients without a valid key are only counted. Otherwise they could push all other decisions out.
        """
        model = requirements.model if requirements is not None else ""
        known = self.router.others.names(model) or self.fleet.snapshot.candidates(model)
        self.counters.refuse(error.code, model if known else "")
        if not isinstance(error, Unauthorized):
            self.decisions.refused(request_id, caller, model, error)
