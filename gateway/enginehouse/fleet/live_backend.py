"""One backend and its live state."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.config.schema import CheckSettings
from enginehouse.domain.backend_load import Load
from enginehouse.domain.backend_status import BackendStatus
from enginehouse.domain.capabilities import UNKNOWN, Capabilities
from enginehouse.domain.replica import ASSUMED_LOAD_S, Candidate, ReplicaState, replica_name
from enginehouse.fleet.backend_info import BackendInfo
from enginehouse.fleet.error_window import ErrorWindow
from enginehouse.fleet.health import HealthTracker
from enginehouse.fleet.pauses import RoutingPauses

_READY = (ReplicaState.READY, 0.0, False)
_STOPPED = (ReplicaState.STOPPED, ASSUMED_LOAD_S, False)


class LiveBackend:
    """A backend's live state, and the candidates last made from it (``offers``, by model).

    ``has_listed``: whether its engine has ever listed its models, which are ``discovered``. ``proxied``: those of its
    models that need no load though it loads others.
    ``state_since``: when each model got its state, ``health_since``: when the backend got its health, if that changed.
    """

    __slots__ = (
        "discovered",
        "draining",
        "errors",
        "has_listed",
        "health",
        "health_since",
        "info",
        "load",
        "node",
        "offers",
        "pauses",
        "proxied",
        "state_since",
        "states",
        "unit",
    )

    def __init__(self, backend: BackendInfo, checks: CheckSettings) -> None:
        self.info = backend
        self.health = HealthTracker(checks, backend.health)
        self.load = Load(backend=backend.name)
        self.errors = ErrorWindow()
        self.pauses = RoutingPauses(checks.interval)
        self.draining = False
        self.node = self.unit = ""
        self.has_listed = False
        self.discovered: dict[str, Capabilities] = {}
        self.proxied: frozenset[str] = frozenset()
        self.states: dict[str, tuple[ReplicaState, float, int]] = {}
        self.state_since: dict[str, float] = {}
        self.health_since: float | None = None
        self.offers: dict[str, Candidate] = {}

    def is_same_server(self, backend: BackendInfo) -> bool:
        """Whether ``backend`` describes the same engine server, perhaps with other settings."""
        if self.info.url or backend.url:
            return (self.info.url, self.info.driver) == (backend.url, backend.driver)
        return self.info.host == backend.host and (self.info.models or {}).keys() == (backend.models or {}).keys()

    @property
    def listed(self) -> bool:
        """Whether its models are known: they are configured, or its engine has listed them."""
        return self.has_listed or self.info.models is not None

    @property
    def state(self) -> ReplicaState:
        """The state of its engine: a server that loads models itself always runs, a managed engine has one model."""
        if self.info.loads_models:
            return ReplicaState.READY
        return next((state for state, _, _ in self.states.values()), ReplicaState.READY)

    @property
    def runs(self) -> bool:
        """Whether its engine runs, so that failures count against it."""
        return self.state is ReplicaState.READY

    def candidates(self, declared: Mapping[str, Capabilities], now: float) -> dict[str, Candidate]:
        """The candidates of the backend at ``now``, by model. ``declared``: capabilities of models on every backend.

        An unchanged candidate is the same object as in ``offers``.
        """
        own = self.info.models
        served = self.discovered if own is None else own
        return {
            model: self._candidate(
                model, self._capabilities(model, card if own is not None else UNKNOWN, declared), now
            )
            for model, card in served.items()
        }

    def _capabilities(self, model: str, own: Capabilities, declared: Mapping[str, Capabilities]) -> Capabilities:
        known = own
        for weaker in (declared.get(model), self._reported(model)):
            if weaker is not None:
                known = weaker if known is UNKNOWN else known.over(weaker)
        return known

    def _reported(self, model: str) -> Capabilities | None:
        """The engine's report on ``model``. A launched engine has only that model, under any name."""
        if not self.info.url and len(self.discovered) == 1:
            return next(iter(self.discovered.values()))
        return self.discovered.get(self.info.names.get(model, model))

    def _candidate(self, model: str, capabilities: Capabilities, now: float) -> Candidate:
        backend, offered = self.info, self.offers.get(model)
        proxied = model in self.proxied
        unknown = _STOPPED if backend.loads_models else _READY
        state, wake_s, cache_kept = _READY if proxied else self.states.get(model, unknown)
        candidate = Candidate(
            model=model,
            backend=backend.name,
            replica=replica_name(model, backend.name) if offered is None else offered.replica,
            name_there=backend.names.get(model, ""),
            host=backend.host,
            health=self.health.health,
            problem=self.health.problem,
            late=self.health.late,
            draining=self.draining,
            paused=self.pauses.why(model, now),
            suspect=model in self.pauses.suspicions,
            state=state,
            proxied=proxied,
            wake_s=wake_s,
            cache_kept=cache_kept,
            priority=backend.priority,
            weight=backend.weight,
            role=backend.role,
            zone=backend.zone,
            tier=backend.tier,
            capabilities=capabilities,
            load=self.load,
        )
        return offered if offered is not None and offered == candidate else candidate

    def status(self, now: float) -> BackendStatus:
        backend, health, load = self.info, self.health, self.load
        return BackendStatus(
            name=backend.name,
            url=backend.url,
            driver=backend.driver,
            priority=backend.priority,
            role=backend.role,
            host=backend.host,
            node=self.node,
            unit=self.unit,
            zone=backend.zone,
            state=ReplicaState.HUNG if health.hung else self.state,
            health=health.health,
            last_error=health.last_error,
            last_error_at=health.last_error_at,
            draining=self.draining,
            leave_alone_s=round(self.pauses.left_alone_s(now), 3) or None,
            models=tuple(self.offers),
            pending=load.pending,
            avg_latency_ms=load.avg_latency_ms,
            error_share=round(load.error_share, 4),
        )
