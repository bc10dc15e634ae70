"""A backend as the fleet reports it."""

from __future__ import annotations

import msgspec

from enginehouse.domain.replica import Health, ReplicaState, Role


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a backend.

    ``state``: of its engine, ``READY`` for a remote backend. ``health``: whether requests may be sent to it; a stopped
    engine is healthy, because a request starts it. ``last_error_at``: seconds on the fleet's clock, which is the epoch
    in a gateway. ``leave_alone_s``: for so long its requests go to other backends, because its engine asked for that.
    ``node`` and ``unit``: where its launcher has placed a launched one; empty if its host says that, or nobody.
    ``avg_latency_ms``: the average time until a response begins. ``error_share``: of its last answers, from 0 to 1.
    """

    name: str
    url: str
    driver: str
    priority: int
    role: Role
    host: str
    node: str = ""
    unit: str = ""
    zone: str = ""
    state: ReplicaState
    health: Health
    last_error: str | None
    last_error_at: float | None
    draining: bool
    leave_alone_s: float | None = None
    models: tuple[str, ...]
    pending: int
    avg_latency_ms: float
    error_share: float = 0.0
