"""Which requests have to give up their blocks so that the others can go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec


class OffloadCandidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that may be moved away.

    ``blocks``: how many would be free then, those that nobody else holds. ``tokens_to_boundary``: how many it makes
    until its last block is full. ``priority``: smaller is more urgent.
    """

    request_id: str
    blocks: int
    remaining_tokens: int = 0
    tokens_to_boundary: int = 0
    priority: int = 0


class OffloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be moved away; ``satisfied`` says whether that is enough."""

    selected: Sequence[OffloadCandidate] = ()
    total_blocks_freed: int = 0
    satisfied: bool = True


_ORDERS: Mapping[str, Callable[[OffloadCandidate], Any]] = {
    "fewest_blocks": lambda candidate: (candidate.blocks, -candidate.remaining_tokens),
    "most_remaining": lambda candidate: (-candidate.remaining_tokens, candidate.blocks),
    "least_urgent": lambda candidate: (-candidate.priority, candidate.blocks, -candidate.remaining_tokens),
}

OFFLOAD_ORDERS = tuple(_ORDERS)
"""The orders in which ``plan_offload`` can look at candidates."""


def plan_offload(candidates: Sequence[OffloadCandidate], deficit: int, order: str = "fewest_blocks") -> OffloadPlan:
    """Choose candidates, first in ``order`` first, until ``deficit`` blocks are freed; nobody without need.

    Candidates that would free nothing are left alone; among equals the first given goes first.
    """
    selected: list[OffloadCandidate] = []
    freed = 0
    for candidate in sorted(candidates, key=_ORDERS[order]):
        if freed >= deficit:
            break
        if candidate.blocks > 0:
            selected.append(candidate)
            freed += candidate.blocks
    for candidate in list(selected):  # one that came late may have made those before it needless
        if freed - candidate.blocks >= deficit:
            selected.remove(candidate)
            freed -= candidate.blocks
    return OffloadPlan(selected=selected, total_blocks_freed=freed, satisfied=freed >= deficit)
