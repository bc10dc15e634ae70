"""The swaps in flight on a host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from enginehouse import SwapId


class Swap(msgspec.Struct, kw_only=True):
    """A swap that was started and has not ended. ``cancelled``: it was given up, and its end is still to come.

    ``last_resort``: it stopped whatever it could.
    """

    id: SwapId
    target: str
    evict: Sequence[str]
    cancelled: bool = False
    last_resort: bool = False


class Swaps:
    """Every swap in flight. They never collide: no two of them touch the same replica."""

    def __init__(self) -> None:
        self._swaps: dict[SwapId, Swap] = {}

    def loads(self) -> int:
        """How many replicas are being loaded; a cancelled swap loads nothing any more."""
        return sum(not swap.cancelled for swap in self._swaps.values())

    def loading(self, replica: str) -> Swap | None:
        """The swap that will bring ``replica``."""
        return next((swap for swap in self._swaps.values() if swap.target == replica and not swap.cancelled), None)

    def targets(self) -> Iterable[str]:
        """What the swaps were started for, also those that were cancelled: it may be half loaded."""
        return [swap.target for swap in self._swaps.values()]

    def touch(self, replica: str) -> bool:
        """Whether ``replica`` is being loaded, evicted, or on its way out of a cancelled swap."""
        return any(swap.target == replica or replica in swap.evict for swap in self._swaps.values())

    def collide_with(self, target: str, evict: Sequence[str]) -> bool:
        """Whether a swap of ``target`` that stops ``evict`` must wait for one of these."""
        return any(collide(target, evict, swap.target, swap.evict) for swap in self._swaps.values())

    def begin(self, swap: Swap) -> None:
        """``swap`` was started."""
        self._swaps[swap.id] = swap

    def end(self, swap: SwapId) -> Swap | None:
        """The swap has ended; ``None`` if it is not in flight: a late or repeated word of it."""
        return self._swaps.pop(swap, None)


def collide(target: str, evict: Sequence[str], other: str, others_evict: Sequence[str]) -> bool:
    """Whether swaps of two targets cannot go on at once: one stops what the other loads, or both stop the same."""
    return target in others_evict or other in evict or any(replica in others_evict for replica in evict)
