"""The starvation guard: whoever waited for ``max_wait`` has a claim, and newer requests keep out of its way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from enginehouse import RequestError
from enginehouse_scheduling.host_view import HostView, Obstacle
from enginehouse_scheduling.queue import Age, Queue
from enginehouse_scheduling.swaps import collide

NEVER: Age = (math.inf, 0)


class Claim(NamedTuple):
    """The swap that somebody has waited for too long, perhaps ``cramped`` the first time.

    ``holds``: it waits for nothing but requests in flight, so newer ones to what it evicts have to wait behind it.
    While it waits for a load, an unload or a residency, they would wait in vain.
    """

    age: Age
    target: str
    evict: Sequence[str]
    holds: bool
    cramped: bool


def claims_of(queue: Queue, view: HostView, now: float) -> list[Claim]:
    """Every claim at ``now``, the oldest first."""
    overdue = view.overdue(now)
    lines = [line for line in queue.lines() if line.oldest.age[0] <= overdue and view.can_start(line.replica)]
    if not lines:
        return []
    claims: list[Claim] = []
    running = view.running()
    for line in sorted(lines, key=lambda line: line.oldest.age):
        try:
            evict = view.evictions(line.replica, running, line.cramped)
        except RequestError:
            continue
        age, obstacle = line.oldest.age, view.obstacle(line.replica, evict, now)
        if obstacle is not Obstacle.STOPPING:
            first = not stand_in_the_way(claims, age, line.replica, evict, running, view)
            holds = first and obstacle in (None, Obstacle.BUSY)
            claims.append(Claim(age, line.replica, evict, holds, line.cramped))
    return claims


def barrier(claims: Iterable[Claim], replica: str) -> Age:
    """Who came after this time has to wait for ``replica``, even if it is ready."""
    return min((claim.age for claim in claims if claim.holds and replica in claim.evict), default=NEVER)


def stand_in_the_way(
    claims: Iterable[Claim], age: Age, target: str, evict: Sequence[str], running: Sequence[str], view: HostView
) -> bool:
    """Whether a claim older than ``age`` comes before a swap of ``target``.

    It does if the two collide, and if it would have more to evict with ``target`` loaded.
    """
    return any(
        collide(target, evict, claim.target, claim.evict) or _adds_to(claim, target, evict, running, view)
        for claim in claims
        if claim.age < age
    )


def _adds_to(claim: Claim, target: str, evict: Sequence[str], running: Sequence[str], view: HostView) -> bool:
    afterwards = [replica for replica in running if replica not in evict and replica != target]
    try:
        return not set(view.evictions(claim.target, [*afterwards, target], claim.cramped)) <= set(claim.evict)
    except RequestError:
        return True
