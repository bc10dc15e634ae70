"""Selects requests to offload when the KV cache runs out of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["OFFLOAD_ORDERS", "OffloadCandidate", "OffloadPlan", "plan_offload"]


class OffloadCandidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that may be offloaded."""

    request_id: str
    blocks: int
    """The blocks that offloading frees: those that no other request shares."""
    remaining_tokens: int = 0
    """The most tokens that the request can still generate."""
    tokens_to_boundary: int = 0
    """The tokens until its last block is full."""
    priority: int = 0
    """Smaller is more urgent."""


class OffloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The requests to offload. ``satisfied`` is whether they free enough blocks."""

    selected: Sequence[OffloadCandidate] = ()
    total_blocks_freed: int = 0
    satisfied: bool = True


_ORDERS: Mapping[str, Callable[[OffloadCandidate], Any]] = {
    "fewest_blocks": lambda candidate: (candidate.blocks, -candidate.remaining_tokens),
    "most_remaining": lambda candidate: (-candidate.remaining_tokens, candidate.blocks),
    "least_urgent": lambda candidate: (-candidate.priority, candidate.blocks, -candidate.remaining_tokens),
}

OFFLOAD_ORDERS = tuple(_ORDERS)
"""The orders in which ``plan_offload`` can select candidates."""


def plan_offload(candidates: Sequence[OffloadCandidate], deficit: int, order: str = "fewest_blocks") -> OffloadPlan:
    """Select candidates in ``order``, one of ``OFFLOAD_ORDERS``, until they free ``deficit`` blocks.

    Selects no candidate that frees no block, and drops selected ones that turn out to be unnecessary. Keeps the order
    of equal candidates. Raises ``KeyError`` for an unknown order.
    """
    selected: list[OffloadCandidate] = []
    freed = 0
    for candidate in sorted(candidates, key=_ORDERS[order]):
        if freed >= deficit:
            break
        if candidate.blocks > 0:
            selected.append(candidate)
            freed += candidate.blocks
    for candidate in list(selected):  # a later, larger candidate may have made earlier ones unnecessary
        if freed - candidate.blocks >= deficit:
            selected.remove(candidate)
            freed -= candidate.blocks
    return OffloadPlan(selected=selected, total_blocks_freed=freed, satisfied=freed >= deficit)
