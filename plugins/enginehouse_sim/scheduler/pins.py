"""Blocks that waiting requests keep from eviction."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.scheduler.interfaces import KvCacheManager


class Pins:
    """At most ``max_blocks`` different blocks; a block that several requests pinned counts once."""

    def __init__(self, kv_cache: KvCacheManager, max_blocks: int) -> None:
        self._kv_cache = kv_cache
        self._max_blocks = max_blocks
        self._counts: dict[int, int] = {}

    @property
    def num_blocks(self) -> int:
        """How many different blocks are pinned."""
        return len(self._counts)

    def pin(self, block_ids: Sequence[int]) -> bool:
        """All of them, or none and ``False`` if they are too many."""
        counts = self._counts
        fresh = [block_id for block_id in block_ids if block_id not in counts]
        if len(counts) + len(fresh) > self._max_blocks:
            return False
        self._kv_cache.hold_blocks(fresh)
        for block_id in block_ids:
            counts[block_id] = counts.get(block_id, 0) + 1
        return True

    def unpin(self, block_ids: Sequence[int]) -> None:
        """One pin less on each."""
        counts = self._counts
        gone = []
        for block_id in block_ids:
            counts[block_id] -= 1
            if not counts[block_id]:
                del counts[block_id]
                gone.append(block_id)
        if gone:
            self._kv_cache.release_blocks(gone)
