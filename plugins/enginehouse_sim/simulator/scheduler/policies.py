"""The bundled policies of simulated engines, and how the engine asks a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from enginehouse import EnginehouseError, EnginePolicy, EngineRequest
from enginehouse_sim.simulator.domain.constants import SchedulingPolicy


class FcfsPolicy(EnginePolicy):
    """First come, first served; the last one admitted is preempted. These are the defaults of ``EnginePolicy``."""


class PriorityPolicy(EnginePolicy):
    """The smallest ``priority`` first, then the earliest arrival, as in vLLM; the last one of these is preempted."""

    def order(self, request: EngineRequest) -> Any:
        return request.priority, request.arrival_time, request.request_id

    def victim(self, running: Sequence[EngineRequest]) -> int:
        return max(range(len(running)), key=lambda at: (running[at].priority, running[at].arrival_time))


_BUNDLED: dict[SchedulingPolicy, type[EnginePolicy]] = {
    SchedulingPolicy.FCFS: FcfsPolicy,
    SchedulingPolicy.PRIORITY: PriorityPolicy,
}


def bundled_policy(name: SchedulingPolicy) -> EnginePolicy:
    """The policy of vLLM with that name."""
    return _BUNDLED[name]()


def overrides(policy: EnginePolicy, method: str) -> bool:
    """Whether the policy decides this itself. The engine decides the rest, which is faster."""
    return getattr(type(policy), method) is not getattr(EnginePolicy, method)


def checked_index(policy: EnginePolicy, method: str, index: int, count: int) -> int:
    """``index``, if it is one of ``count`` places. Raises ``EnginehouseError``."""
    if not 0 <= index < count:
        problem = f"{type(policy).__name__}.{method} returned {index!r}, which is not an index of {count}"
        raise EnginehouseError(f"The engine policy failed: {problem}")
    return index
