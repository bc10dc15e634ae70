"""The starvation guard: a ticket that has waited for ``max_wait`` has a claim, and newer tickets wait behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from enginehouse import RequestError
from enginehouse.tickets import ReplicaLine, TicketAge, TicketQueue
from enginehouse_kit.schedulers.state import SchedulingState, SwapObstacle, collide


class _Claim(NamedTuple):
    """A swap that a ticket has waited for too long.

    ``holds`` means that only requests in flight prevent it, so newer requests for the replicas that it evicts wait.
    While it waits for a load, an unload or a residency, holding them back would not help.
    """

    age: TicketAge
    target: str
    evict: Sequence[str]
    holds: bool
    cramped: bool


class StarvationClaims:
    """The claims of the tickets that are overdue at ``now``, the oldest first."""

    NO_BARRIER: ClassVar[TicketAge] = (math.inf, 0)

    def __init__(self, queue: TicketQueue, state: SchedulingState, now: float) -> None:
        self._state = state
        self._claims: list[_Claim] = []
        overdue = state.overdue(now)
        lines = [
            line
            for line in queue.lines()
            if line.oldest.age[0] <= overdue and line.claims_from <= now and state.can_start(line.replica)
        ]
        if lines:
            running = state.running()
            for line in sorted(lines, key=lambda line: line.oldest.age):
                self._add(line, running, now)

    def barrier(self, replica: str) -> TicketAge:
        """Return the age above which requests wait for ``replica`` although it is ready."""
        return min(
            (claim.age for claim in self._claims if claim.holds and replica in claim.evict), default=self.NO_BARRIER
        )

    def block(self, age: TicketAge, target: str, evict: Sequence[str], running: Sequence[str]) -> bool:
        """Whether a claim older than ``age`` holds back a swap of ``target``.

        It does if the two swaps collide, or if it would have more to evict after the load of ``target``.
        """
        return any(
            collide(target, evict, claim.target, claim.evict) or self._would_grow(claim, target, evict, running)
            for claim in self._claims
            if claim.age < age
        )

    def _add(self, line: ReplicaLine, running: Sequence[str], now: float) -> None:
        target, age = line.replica, line.oldest.age
        try:
            evict = self._state.evictions(target, running, line.cramped)
        except RequestError:
            return
        obstacle = self._state.obstacle(target, evict, now)
        if obstacle is not SwapObstacle.STOPPING:
            holds = obstacle in (None, SwapObstacle.BUSY) and not self.block(age, target, evict, running)
            self._claims.append(_Claim(age, target, evict, holds, line.cramped))

    def _would_grow(self, claim: _Claim, target: str, evict: Sequence[str], running: Sequence[str]) -> bool:
        afterwards = [replica for replica in running if replica not in evict and replica != target]
        try:
            grown = self._state.evictions(claim.target, [*afterwards, target], claim.cramped)
        except RequestError:
            return True
        return not set(grown) <= set(claim.evict)
