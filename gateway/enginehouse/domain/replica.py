"""Replicas, and what a decision may know of them."""

from __future__ import annotations

from enum import Enum

import msgspec

from enginehouse.domain.capabilities import UNKNOWN, Capabilities


class Role(str, Enum):
    """Which half of a request an engine serves when prefill and decode are split."""

    PREFILL = "prefill"
    DECODE = "decode"
    NEUTRAL = "neutral"


class ReplicaState(str, Enum):
    """The life of a replica. A remote replica is ``READY`` for as long as its backend is known."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    STOPPING = "stopping"
    FAILED = "failed"


AT_REST = (ReplicaState.STOPPED, ReplicaState.FAILED)
"""The states of a replica that takes no memory."""


class Health(str, Enum):
    """What probes and live traffic say of a backend."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


_LATENCY_WEIGHT = 0.2


class Load(msgspec.Struct):
    """The live figures of one backend, shared by all its candidates.

    The relay writes them as requests come and go; a decision only reads them.

    ``pending``: requests sent to the backend and not yet finished. ``avg_latency_ms``: exponentially weighted average
    (weight 0.2) of the time until an answer begins, 0 until the first one.
    """

    pending: int = 0
    avg_latency_ms: float = 0.0

    def begin(self) -> None:
        """A request was sent."""
        self.pending += 1

    def end(self) -> None:
        """A request ended, however it ended."""
        self.pending -= 1

    def answered(self, latency_ms: float) -> None:
        """An answer began after ``latency_ms``."""
        average = self.avg_latency_ms
        self.avg_latency_ms = average + _LATENCY_WEIGHT * (latency_ms - average) if average else latency_ms


def replica_name(model: str, backend: str) -> str:
    """The name of ``model`` as served by ``backend``: ``llama3:8b@gpu-1``."""
    return f"{model}@{backend}"


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A replica considered for a request. Everything but ``load`` is fixed for as long as its snapshot lives.

    ``priority``: lower is better. ``wake_s``: seconds it is expected to take until a replica that is not ready serves.
    """

    model: str
    backend: str
    replica: str
    host: str = "local"
    health: Health = Health.HEALTHY
    draining: bool = False
    state: ReplicaState = ReplicaState.READY
    wake_s: float = 0.0
    priority: int = 0
    role: Role = Role.NEUTRAL
    capabilities: Capabilities = UNKNOWN
    load: Load = msgspec.field(default_factory=Load)
