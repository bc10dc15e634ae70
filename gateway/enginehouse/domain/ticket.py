"""Tickets and swaps."""

from __future__ import annotations

import math
from enum import Enum
from typing import NewType

import msgspec

SwapId = NewType("SwapId", int)
"""Identifies one swap, and so distinguishes the result of an old swap from that of a new one with the same target."""


class Phase(str, Enum):
    """The progress of a request."""

    ROUTING = "routing"
    QUEUED = "queued"
    DOWNLOADING = "downloading"
    PLACING = "placing"
    LOADING = "loading"
    SERVING = "serving"
    MIGRATING = "migrating"
    DONE = "done"
    FAILED = "failed"


class Ticket(msgspec.Struct, eq=False, kw_only=True):
    """One request in the queue of a host."""

    id: str
    """The request's id."""
    replica: str
    """The replica that the request waits for."""
    priority: int = 0
    """Higher first."""
    arrived: float = 0.0
    """The time of arrival, in seconds on the scheduler's clock."""
    caller: str | None = None
    """The name of the caller's key."""
    deadline: float = math.inf
    """When it must be granted, on the scheduler's clock. Of equal priorities, the earliest comes first."""
    turn: float = 0.0
    """Its turn among tickets of the same priority and deadline: lower first, then by arrival."""


class SwapDone(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one swap. ``error`` is ``None`` if ``target`` is ready."""

    swap: SwapId
    target: str
    error: Exception | None = None
