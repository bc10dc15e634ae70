"""The state of a scheduler, and its guard against starvation."""

from __future__ import annotations

from enginehouse_kit.schedulers.starvation import StarvationClaims
from enginehouse_kit.schedulers.state import ReplicaUsage, SchedulingState, SwapInFlight, SwapObstacle, SwapsInFlight

__all__ = [
    "ReplicaUsage",
    "SchedulingState",
    "StarvationClaims",
    "SwapInFlight",
    "SwapObstacle",
    "SwapsInFlight",
]
