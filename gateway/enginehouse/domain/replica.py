"""Replicas and candidates."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from enginehouse.domain.backend_load import Load
from enginehouse.domain.capabilities import UNKNOWN, Capabilities


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
