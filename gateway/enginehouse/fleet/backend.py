"""A backend as the fleet is told of it, and as the fleet tells of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.replica import Health, ReplicaState, Role


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend that joins the fleet.

    ``models``: what it serves and what its copies can do, or ``None`` to serve whatever is discovered.
    ``health``: what is known at the start; ``UNKNOWN`` until the first probe or request decides.
    """

    name: str
    url: str
    driver: str = "openai"
    priority: int = 0
    role: Role = Role.NEUTRAL
    host: str = "local"
    models: Mapping[str, Capabilities] | None = None
    health: Health = Health.UNKNOWN


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a backend is now.

    ``state``: of its engine, ``READY`` if somebody else runs it. ``health``: whether requests may be sent there, which
    may have an engine started that is stopped or failed. ``last_error_at``: seconds on the fleet's clock, in a gateway
    those since the epoch. ``avg_latency_ms``: average time until an answer begins.
    """

    name: str
    url: str
    driver: str
    priority: int
    role: Role
    host: str
    state: ReplicaState
    health: Health
    last_error: str | None
    last_error_at: float | None
    draining: bool
    models: tuple[str, ...]
    pending: int
    avg_latency_ms: float
