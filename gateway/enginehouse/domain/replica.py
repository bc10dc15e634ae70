"""Replicas: their backends' load, the candidates of requests at one moment, and the route of a request. Compiled."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from enginehouse.domain.capabilities import UNKNOWN, Capabilities
from enginehouse.domain.explanation import RouteDetails

_LEAST_WEIGHT: Final = 0.01
"""The weight of a new latency after many answers. It is small, because prompts differ far more than backends do."""
_OVERTAKEN_WEIGHT: Final = 0.1
"""The least weight of a request that another engine began first: too many of them are the engine's fault."""
_AGED_WEIGHT: Final = 0.25
"""The most weight of an answer after ageing: with more, one slow answer would be held against an equal engine."""


class Role(str, Enum):
    """The part of a request that an engine serves when prefill and decode are disaggregated."""

    PREFILL = "prefill"
    DECODE = "decode"
    NEUTRAL = "neutral"


class ReplicaState(str, Enum):
    """The state of a replica. A replica of a remote backend is always ``READY``.

    ``DOWNLOADING``: its model's files are fetched. ``PLACING``: its launcher waits for resources for it. ``HUNG``: the
    state of a backend whose engine serves nobody.
    """

    STOPPED = "stopped"
    DOWNLOADING = "downloading"
    PLACING = "placing"
    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    STOPPING = "stopping"
    FAILED = "failed"
    HUNG = "hung"


ASSUMED_LOAD_S = 5.0
"""The assumed duration of a load until one was measured."""
AT_REST = (ReplicaState.STOPPED, ReplicaState.FAILED)
"""The states in which a replica uses no memory."""


class Health(str, Enum):
    """The health of a backend, judged by probes and live requests."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


def replica_name(model: str, backend: str) -> str:
    """The name of a replica, such as ``llama3:8b@gpu-1``."""
    return f"{model}@{backend}"


@dataclass
class Load:
    """The live load figures of one backend, shared by all its candidates.

    The gateway updates them when requests start and end. Plugins only read them.
    """

    pending: int = 0
    """Requests that were sent to the backend and have not ended."""
    avg_latency_ms: float = 0.0
    """The average time to the first byte: of all answers up to 100, then exponential (weight 0.01); at first 0.

    While the backend gets no requests, it moves towards the averages of others with the same model."""
    latency_weight: float = 1.0
    """The weight of the next answer in this average."""
    error_share: float = 0.0
    """The share of bad answers in the last two minutes, from 0 to 1; 0 for fewer than ten answers."""
    answers: int = 0
    """The answers in this average since stale averages were last aged."""
    slots: int = 0
    """The most requests that it serves at once; the gateway queues others. 0: no limit is known."""
    engine_waiting: int = 0
    """Requests that wait inside the engine, as it last reported."""
    kv_usage: float = 0.0
    """The share of the engine's KV cache that is in use, from 0 to 1, as it last reported."""
    figures_at: float | None = None
    """When the engine was last asked for these two, in seconds of the gateway's clock; ``None``: it never reported."""
    cache_tokens: int = 0
    """The tokens that the engine's KV cache holds, as it last reported; 0 if it did not say."""
    adapters: tuple[str, ...] = ()
    """The LoRA adapters of its running and waiting requests, as it last reported, by its own names for them."""
    max_adapters: int = 0
    """The most adapters that it runs at once; 0 if it did not say."""

    backend: str = field(default="", repr=False, compare=False)
    """The name of the backend."""
    cells: memoryview | None = field(default=None, repr=False, compare=False)
    """The requests that each worker has at the backend, in memory that all share; ``None`` in a gateway of one."""
    own_cell: int = field(default=0, repr=False, compare=False)

    def share(self, cells: memoryview | None, own_cell: int) -> None:
        """Count in ``cells`` from now on, in the ``own_cell`` of this process, what ``refresh`` adds up.

        Requests that are in flight stay counted, also those of an earlier load of the backend.
        """
        mine = self.pending
        if self.cells is not None:
            mine, self.cells[self.own_cell] = self.cells[self.own_cell], 0
        self.cells, self.own_cell = cells, own_cell
        if cells is not None:
            cells[own_cell] += mine

    def refresh(self) -> None:
        """Set ``pending`` to what all workers have there now."""
        if self.cells is not None:
            self.pending = sum(self.cells)

    @property
    def free(self) -> int | None:
        """Free slots; ``None`` if no limit is known."""
        return max(0, self.slots - self.pending) if self.slots else None

    def report(self, waiting: int, kv_usage: float, cache_tokens: int, at: float) -> None:
        """Take the figures that the engine was asked for ``at`` a time."""
        self.engine_waiting, self.kv_usage, self.figures_at = waiting, kv_usage, at
        self.cache_tokens = cache_tokens

    def report_adapters(self, active: tuple[str, ...], most: int) -> None:
        """Take what the engine said of its LoRA adapters."""
        self.adapters, self.max_adapters = active, most

    def forget_latencies(self) -> None:
        """Begin the average again, because another engine process may answer now."""
        self.avg_latency_ms, self.latency_weight = 0.0, 1.0

    def begin(self) -> None:
        """Count a request that was sent."""
        self.pending += 1
        if self.cells is not None:
            self.cells[self.own_cell] += 1

    def end(self) -> None:
        """Count a request that ended, successfully or not."""
        self.pending -= 1
        if self.cells is not None:
            self.cells[self.own_cell] -= 1

    def answered(self, latency_ms: float) -> None:
        """Add the latency of an answer to the average."""
        weight = self.latency_weight
        self.answers += 1
        self.avg_latency_ms += weight * (latency_ms - self.avg_latency_ms)
        if weight > _LEAST_WEIGHT:
            self.latency_weight = weight / (1 + weight)

    def overtaken(self, waited_ms: float) -> None:
        """Count a request that another engine began first, after this one had ``waited_ms`` for it."""
        if waited_ms > self.avg_latency_ms:
            self.latency_weight = max(self.latency_weight, _OVERTAKEN_WEIGHT)
            self.answered(waited_ms)

    def age(self, others_ms: float, share: float) -> None:
        """Move the average towards that of others by ``share``, from 0 to 1. The next answer weighs the more."""
        self.avg_latency_ms += share * (others_ms - self.avg_latency_ms)
        self.latency_weight = max(self.latency_weight, _AGED_WEIGHT * share)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A replica that may serve a request. All fields but ``load`` are constant."""

    model: str
    backend: str
    replica: str
    """The name of the replica, ``model@backend``."""
    name_there: str = ""
    """The name that the engine has for the model, if it is another one."""
    host: str = "local"
    health: Health = Health.HEALTHY
    problem: str = ""
    """Why the backend is unhealthy; empty if it is not."""
    late: bool = False
    """Whether nothing but late answers to its health checks makes the backend unhealthy."""
    draining: bool = False
    """Whether the backend accepts no new requests because an operator drains it."""
    paused: str = ""
    """Why requests go to other replicas for a while, as long as there are any; empty if they need not."""
    suspect: bool = False
    """Whether the engine refused the model with 401, 403 or 404 when it was last asked, and another one serves it."""
    state: ReplicaState = ReplicaState.READY
    proxied: bool = False
    """Whether its engine only passes requests on, so that it waits in no queue and needs no load."""
    wake_s: float = 0.0
    """The expected seconds until a replica that is not ready can serve."""
    cache_kept: int = 0
    """The estimated tokens that a launched engine which does not run has in its prefix cache again when it does."""
    priority: int = 0
    """The backend's priority in the configuration; lower is better."""
    weight: float = 1.0
    """The backend's share of the requests, relative to others, for strategies that do not learn it."""
    role: Role = Role.NEUTRAL
    zone: str = ""
    """The backend's privacy zone; empty for none."""
    tier: int = 0
    """How good the backend's models are, as the configuration says; 0 if it does not."""
    capabilities: Capabilities = UNKNOWN
    load: Load = field(default_factory=Load)

    def __reduce__(self) -> tuple[Any, ...]:
        """How copies are made: a compiled class has no other way."""
        return _candidate, ({each.name: getattr(self, each.name) for each in fields(self)},)


def _candidate(values: dict[str, Any]) -> Candidate:
    return Candidate(**values)


class Snapshot:
    """The fleet at one moment. ``models``: every served model with its candidates, at least one each.

    ``unlisted``: the backends of which no models are known, because their engines have not listed any yet.

    A snapshot never changes, except for the load figures that its candidates share with the fleet.
    """

    __slots__ = ("_models", "_unlisted")

    def __init__(self, models: dict[str, tuple[Candidate, ...]] | None = None, unlisted: tuple[str, ...] = ()) -> None:
        self._models = models if models is not None else {}
        self._unlisted = unlisted

    @property
    def models(self) -> Mapping[str, tuple[Candidate, ...]]:
        return MappingProxyType(self._models)

    @property
    def unlisted(self) -> tuple[str, ...]:
        return self._unlisted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._models == other._models and self._unlisted == other._unlisted

    @staticmethod
    def of(offers: Iterable[Mapping[str, Candidate]], unlisted: tuple[str, ...] = ()) -> Snapshot:
        """Make a snapshot from the candidates of each backend, in the order of the backends."""
        models: dict[str, list[Candidate]] = {}
        for offered in offers:
            for model, candidate in offered.items():
                models.setdefault(model, []).append(candidate)
        return Snapshot({model: tuple(row) for model, row in models.items()}, unlisted)

    def candidates(self, model: str) -> tuple[Candidate, ...]:
        """The replicas that serve ``model``, healthy or not. Empty for an unknown model."""
        return self._models.get(model, ())

    def ready_on(self, backend: str) -> Iterator[str]:
        """The models that ``backend`` has ready."""
        for model, row in self.models.items():
            if any(each.backend == backend and each.state is ReplicaState.READY for each in row):
                yield model

    def replacing(
        self,
        before: Mapping[str, Candidate],
        after: Mapping[str, Candidate],
        places: Mapping[str, int],
        unlisted: tuple[str, ...] = (),
    ) -> Snapshot:
        """Replace the candidates ``before`` of one backend by those ``after``, both by model.

        ``places`` orders the backends. The two snapshots share the rows that did not change.
        """
        models = self._models.copy()
        for model in {**before, **after}:
            old, new = before.get(model), after.get(model)
            if old is new:
                continue
            row = _replaced(models.get(model, ()), old, new, places)
            if row:
                models[model] = row
            else:
                del models[model]
        return Snapshot(models, unlisted)

    def exchanging(self, before: Candidate, after: Candidate) -> Snapshot:
        """Replace a candidate by another one of the same replica. The two snapshots share all other rows."""
        row = self._models[before.model]
        at = row.index(before)
        models = self._models.copy()
        models[before.model] = (*row[:at], after, *row[at + 1 :])
        return Snapshot(models, self._unlisted)


class SomeBackends(Snapshot):
    """The candidates of a snapshot at these ``backends``."""

    def __init__(self, whole: Snapshot, backends: Collection[str]) -> None:
        super().__init__()
        self._whole = whole
        self._backends = backends

    def candidates(self, model: str) -> tuple[Candidate, ...]:
        return tuple([each for each in self._whole.candidates(model) if each.backend in self._backends])


def _replaced(
    row: tuple[Candidate, ...], old: Candidate | None, new: Candidate | None, places: Mapping[str, int]
) -> tuple[Candidate, ...]:
    backend = (old or new).backend  # type: ignore[union-attr]
    at = bisect_left(row, places[backend], key=lambda candidate: places[candidate.backend])
    after = row[at:] if old is None else row[at + 1 :]
    return row[:at] + after if new is None else (*row[:at], new, *after)


class Reason(str, Enum):
    """Why the gateway chose the model of a route."""

    MATCH = "match"
    ALIAS = "alias"
    FALLBACK = "fallback"
    RETRY = "retry"
    HEDGE = "hedge"


@dataclass(init=False)
class Route:
    """The routing decision for one request. It never changes.

    - ``requested``: the model that the client asked for.
    - ``chosen``: the replica that serves the request.
    - ``attempted``: the models considered, in order. The last one is the chosen replica's.
    - ``details``: only of traced requests.
    - ``prefill``: the replica that reads the prompt for ``chosen``, if another one does.
    - ``placement``: what the strategy follows the request with, a ``Placement``; ``None`` if it does not.
    - ``waits``: ``chosen`` has no free slot: the request waits for any replica of the model. Nothing follows it yet.
    """

    requested: str
    chosen: Candidate
    reason: Reason
    attempted: tuple[str, ...]
    details: RouteDetails | None
    prefill: Candidate | None
    placement: Any
    waits: bool

    def __init__(
        self,
        requested: str,
        chosen: Candidate,
        reason: Reason,
        attempted: tuple[str, ...],
        details: RouteDetails | None = None,
        prefill: Candidate | None = None,
        placement: Any = None,
        waits: bool = False,
    ) -> None:
        self.requested = requested
        self.chosen = chosen
        self.reason = reason
        self.attempted = attempted
        self.details = details
        self.prefill = prefill
        self.placement = placement
        self.waits = waits

    @property
    def model(self) -> str:
        """The model that serves the request."""
        return self.chosen.model

    def __reduce__(self) -> tuple[Any, ...]:
        """How copies are made: a compiled class has no other way."""
        return Route, tuple([getattr(self, each.name) for each in fields(self)])
