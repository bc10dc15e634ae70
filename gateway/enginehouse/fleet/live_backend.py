"""One backend: what the configuration says of it, its live state, its pauses and its bad answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from enginehouse.config.schema import CheckSettings
from enginehouse.domain.backend_status import BackendStatus
from enginehouse.domain.capabilities import UNKNOWN, Capabilities
from enginehouse.domain.replica import ASSUMED_LOAD_S, Candidate, Health, Load, ReplicaState, Role, replica_name
from enginehouse.fleet.health import ErrorWindow, HealthTracker

NEVER: Final = float("inf")
_LONGEST_DOUBLINGS: Final = 6
_READY = (ReplicaState.READY, 0.0, 0)
_STOPPED = (ReplicaState.STOPPED, ASSUMED_LOAD_S, 0)


class BackendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a backend.

    - ``models``: the models that it serves and their capabilities; ``None`` to take the models that probes discover.
    - ``names``: those that its engine has for these models, where they differ.
    - ``health``: the verdict at the start. ``UNKNOWN`` leaves it to the first probe or request.
    - ``loads_models``: its models are replicas with states, stopped at first.
    """

    name: str
    url: str
    driver: str = "openai"
    priority: int = 0
    weight: float = 1.0
    role: Role = Role.NEUTRAL
    host: str = "local"
    zone: str = ""
    tier: int = 0
    models: Mapping[str, Capabilities] | None = None
    names: Mapping[str, str] = {}
    health: Health = Health.UNKNOWN
    loads_models: bool = False


class Suspicion(msgspec.Struct, frozen=True, array_like=True):
    """A backend refused a model that another one serves. ``status``: its answer. ``until``: the end of the pause."""

    status: int
    until: float
    doublings: int = 0


class RoutingPauses:
    """The pauses of one backend, and of its models. Times are in seconds of the caller's clock.

    A refused model is suspect, in its pause and after it, until an answer or a probe says otherwise. Its pause doubles,
    up to 64 times ``first_s``, whenever the first answer after it is a refusal again. ``left_alone_until``: the end of
    the pause that the backend asked for last; 0 if it never did. ``suspicions``: of the suspect models.
    """

    def __init__(self, first_s: float) -> None:
        self.first_s = first_s
        self.left_alone_until = 0.0
        self.suspicions: dict[str, Suspicion] = {}

    def leave_alone(self, until: float) -> None:
        """Pause the whole backend until then."""
        self.left_alone_until = max(self.left_alone_until, until)

    def left_alone_s(self, now: float) -> float:
        """The rest of the pause that the backend asked for; 0 without one."""
        return max(0.0, self.left_alone_until - now)

    def suspect(self, model: str, status: int, now: float) -> None:
        """Note that ``model`` was refused with ``status``. Refusals during a pause are older than it."""
        known = self.suspicions.get(model)
        if known is None:
            self.suspicions[model] = Suspicion(status, now + self.first_s)
        elif now >= known.until:
            doublings = min(known.doublings + 1, _LONGEST_DOUBLINGS)
            self.suspicions[model] = Suspicion(status, now + self.first_s * 2**doublings, doublings)

    def clear(self, model: str) -> bool:
        """Trust the backend with ``model`` again. Returns whether it was suspect."""
        return self.suspicions.pop(model, None) is not None

    def clear_all(self) -> None:
        """Trust the backend with every model again."""
        self.suspicions.clear()

    def why(self, model: str, now: float) -> str:
        """Why requests for ``model`` go elsewhere now, for people to read; empty if they need not."""
        if now < self.left_alone_until:
            return "its engine asked to be left alone (Retry-After)"
        known = self.suspicions.get(model)
        if known is not None and now < known.until:
            return f"it answered {known.status} to what another backend serves"
        return ""

    def next_end(self, now: float) -> float:
        """The end of the pause that ends first after ``now``; ``NEVER`` without one."""
        ends = (self.left_alone_until, *(each.until for each in self.suspicions.values()))
        return min((end for end in ends if end > now), default=NEVER)


class LiveBackend:
    """A backend's live state, and the candidates last made from it (``offers``, by model).

    ``has_listed``: whether its engine has ever listed its models, which are ``discovered``. ``proxied``: those of its
    models that need no load though it loads others.
    ``state_since``: when each model got its state, ``health_since``: when the backend got its health, if that changed.
    """

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
            model: self.candidate(model, self._capabilities(model, card if own is not None else UNKNOWN, declared), now)
            for model, card in served.items()
        }

    def _capabilities(self, model: str, own: Capabilities, declared: Mapping[str, Capabilities]) -> Capabilities:
        known = own
        for weaker in (declared.get(model), self._reported(model)):
            if weaker is not None:
                known = weaker if known == UNKNOWN else known.over(weaker)
        return known

    def _reported(self, model: str) -> Capabilities | None:
        """The engine's report on ``model``. A launched engine has only that model, under any name."""
        if not self.info.url and len(self.discovered) == 1:
            return next(iter(self.discovered.values()))
        return self.discovered.get(self.info.names.get(model, model))

    def candidate(self, model: str, capabilities: Capabilities, now: float) -> Candidate:
        """The candidate of one model, which has these ``capabilities``, at ``now``."""
        backend, offered, pauses = self.info, self.offers.get(model), self.pauses
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
            paused=pauses.why(model, now) if pauses.left_alone_until or pauses.suspicions else "",
            suspect=model in pauses.suspicions,
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
