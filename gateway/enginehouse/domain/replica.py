"""Replicas and candidates."""

from __future__ import annotations

from enum import Enum

import msgspec

from enginehouse.domain.capabilities import UNKNOWN, Capabilities


class Role(str, Enum):
    """The part of a request that an engine serves when prefill and decode are disaggregated."""

    PREFILL = "prefill"
    DECODE = "decode"
    NEUTRAL = "neutral"


class ReplicaState(str, Enum):
    """The state of a replica. A replica of a remote backend is always ``READY``."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    STOPPING = "stopping"
    FAILED = "failed"


AT_REST = (ReplicaState.STOPPED, ReplicaState.FAILED)
"""The states in which a replica uses no memory."""


class Health(str, Enum):
    """The health of a backend, judged by probes and live requests."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


_LEAST_WEIGHT = 0.01
"""The weight of a new latency after many answers. It is small, because prompts differ far more than backends do."""


class Load(msgspec.Struct):
    """The live load figures of one backend, shared by all its candidates.

    The gateway updates them when requests start and end. Plugins only read them.
    """

    pending: int = 0
    """Requests that were sent to the backend and have not ended."""
    avg_latency_ms: float = 0.0
    """The average time to the first byte: of all answers up to 100, then exponential (weight 0.01); at first 0."""
    latency_weight: float = 1.0
    """The weight of the next answer in this average."""

    def begin(self) -> None:
        """Count a request that was sent."""
        self.pending += 1

    def end(self) -> None:
        """Count a request that ended, successfully or not."""
        self.pending -= 1

    def answered(self, latency_ms: float) -> None:
        """Add the latency of an answer to the average."""
        weight = self.latency_weight
        self.avg_latency_ms += weight * (latency_ms - self.avg_latency_ms)
        if weight > _LEAST_WEIGHT:
            self.latency_weight = weight / (1 + weight)


def replica_name(model: str, backend: str) -> str:
    """The name of a replica, such as ``llama3:8b@gpu-1``."""
    return f"{model}@{backend}"


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A replica that may serve a request. All fields but ``load`` are constant."""

    model: str
    backend: str
    replica: str
    """The name of the replica, ``model@backend``."""
    host: str = "local"
    health: Health = Health.HEALTHY
    draining: bool = False
    """Whether the backend accepts no new requests because an operator drains it."""
    state: ReplicaState = ReplicaState.READY
    wake_s: float = 0.0
    """The expected seconds until a replica that is not ready can serve."""
    priority: int = 0
    """The backend's priority in the configuration; lower is better."""
    role: Role = Role.NEUTRAL
    capabilities: Capabilities = UNKNOWN
    load: Load = msgspec.field(default_factory=Load)
