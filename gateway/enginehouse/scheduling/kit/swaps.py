"""The swaps in flight on a host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from enginehouse.domain.ticket import SwapId


class SwapInFlight(msgspec.Struct, kw_only=True):
    """A swap that was started and has not ended.

    A ``cancelled`` swap still takes memory until its end is reported. A swap of ``last_resort`` also evicted every
    dispensable replica, so its failure for lack of memory is final.
    """

    id: SwapId
    target: str
    evict: Sequence[str]
    cancelled: bool = False
    last_resort: bool = False


class SwapsInFlight:
    """The swaps in flight. No two of them touch the same replica."""

    def __init__(self) -> None:
        self._swaps: dict[SwapId, SwapInFlight] = {}

    def loads(self) -> int:
        """The number of replicas being loaded, without cancelled swaps."""
        return sum(not swap.cancelled for swap in self._swaps.values())

    def loading(self, replica: str) -> SwapInFlight | None:
        """The swap that loads ``replica``, unless it was cancelled."""
        return next((swap for swap in self._swaps.values() if swap.target == replica and not swap.cancelled), None)

    def targets(self) -> Iterable[str]:
        """The targets, also those of cancelled swaps, which may be half loaded."""
        return [swap.target for swap in self._swaps.values()]

    def touch(self, replica: str) -> bool:
        """Whether a swap, cancelled or not, loads or evicts ``replica``."""
        return any(swap.target == replica or replica in swap.evict for swap in self._swaps.values())

    def collide_with(self, target: str, evict: Sequence[str]) -> bool:
        """Whether a swap of ``target`` that evicts ``evict`` must wait for one of these."""
        return any(collide(target, evict, swap.target, swap.evict) for swap in self._swaps.values())

    def add(self, swap: SwapInFlight) -> None:
        """Remember a swap that was just started."""
        self._swaps[swap.id] = swap

    def remove(self, swap: SwapId) -> SwapInFlight | None:
        """Return a swap that ended. ``None`` if it is not in flight: the report is late or repeated."""
        return self._swaps.pop(swap, None)


def collide(target: str, evict: Sequence[str], other: str, others_evict: Sequence[str]) -> bool:
    """Whether two swaps exclude each other: one evicts the other's target, or both evict the same replica."""
    return target in others_evict or other in evict or any(replica in others_evict for replica in evict)
