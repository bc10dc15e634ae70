"""The status of a backend, for tests that need only some of its facts."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse import Health, ReplicaState, Role
from enginehouse.backends import BackendStatus

_STATUS = BackendStatus(
    name="b",
    url="",
    driver="sim",
    priority=0,
    role=Role.NEUTRAL,
    host="local",
    state=ReplicaState.READY,
    health=Health.HEALTHY,
    last_error=None,
    last_error_at=None,
    draining=False,
    models=("m",),
    pending=0,
    avg_latency_ms=0.0,
)


def backend_status(**facts: Any) -> BackendStatus:
    """A ready and healthy backend with these ``facts``."""
    return msgspec.structs.replace(_STATUS, **facts)
