"""Injects the faults of a replay."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

from enginehouse import ConfigError, did_you_mean
from enginehouse_sim.simulator.replay.faults import FaultKind, PlannedFault
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.replay.played_server import PlayedServer


class FaultPlan:
    """Begins and ends faults at their times. ``servers``: by backend. Raises ``ConfigError`` for an unknown engine."""

    def __init__(
        self,
        faults: Sequence[PlannedFault],
        servers: Mapping[str, PlayedServer],
        begin_step: Callable[[PlayedEngine], None],
    ) -> None:
        self._servers = servers
        self._begin_step = begin_step
        self._due: list[tuple[float, int, PlannedFault, bool]] = []
        for number, fault in enumerate(faults):
            if fault.engine not in servers:
                hint = did_you_mean(fault.engine, list(servers)) or f"one of {', '.join(servers)}"
                raise ConfigError(f"there is no engine '{fault.engine}'", key="--fault", remedy=hint)
            heapq.heappush(self._due, (fault.at, number, fault, True))
            if fault.duration is not None:
                heapq.heappush(self._due, (fault.at + fault.duration, number, fault, False))

    @property
    def next_at(self) -> float:
        """When the next fault begins or ends, in seconds since the first request; infinite if none will."""
        return self._due[0][0] if self._due else math.inf

    def advance(self, now: float) -> None:
        """Begin or end that one; ``now`` is on the engines' clock."""
        _, _, fault, begins = heapq.heappop(self._due)
        server = self._servers[fault.engine]
        if begins:
            self._begin(fault, server)
        else:
            self._end(fault, server, now)

    def _begin(self, fault: PlannedFault, server: PlayedServer) -> None:
        if fault.kind is FaultKind.KILL:
            server.crash()
        elif fault.kind is FaultKind.STALL:
            server.stall()
        elif fault.kind is FaultKind.SLOW:
            server.engine.slow_down(fault.factor)
        else:
            server.refuse()

    def _end(self, fault: PlannedFault, server: PlayedServer, now: float) -> None:
        if fault.kind is FaultKind.KILL:
            server.revive()
        elif fault.kind is FaultKind.STALL:
            server.engine.resume(now)
            self._begin_step(server.engine)
        elif fault.kind is FaultKind.SLOW:
            server.engine.slow_down(1.0)
        else:
            server.refuses = False
