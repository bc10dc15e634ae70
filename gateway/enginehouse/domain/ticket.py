"""A request's place at a host's scheduler, and the swaps it may wait for."""

from __future__ import annotations

from enum import Enum
from typing import NewType

import msgspec

SwapId = NewType("SwapId", int)
"""The identity of one swap, so that a late result cannot be taken for a newer one's."""


class Phase(str, Enum):
    """Where a request is on its way."""

    ROUTING = "routing"
    QUEUED = "queued"
    LOADING = "loading"
    SERVING = "serving"
    MIGRATING = "migrating"
    DONE = "done"
    FAILED = "failed"


class Ticket(msgspec.Struct, eq=False, kw_only=True):
    """One request waiting for a replica. ``priority``: higher first. ``arrived``: seconds on the scheduler's clock."""

    id: str
    replica: str
    priority: int = 0
    arrived: float = 0.0


class SwapDone(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one swap; ``error`` is ``None`` when ``target`` is ready."""

    swap: SwapId
    target: str
    error: Exception | None = None
