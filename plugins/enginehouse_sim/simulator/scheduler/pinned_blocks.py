"""Cached blocks that waiting requests keep from eviction."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager


class PinnedBlocks:
    """At most ``max_blocks`` different blocks; a block pinned by several requests counts once."""

    def __init__(self, kv_cache: KvCacheManager, max_blocks: int) -> None:
        self._kv_cache = kv_cache
        self._max_blocks = max_blocks
        self._counts: dict[int, int] = {}

    @property
    def num_blocks(self) -> int:
        return len(self._counts)

    def pin(self, block_ids: Sequence[int]) -> bool:
        """Pin all blocks. Return ``False``, and pin none, if they are too many."""
        counts = self._counts
        new = [block_id for block_id in block_ids if block_id not in counts]
        if len(counts) + len(new) > self._max_blocks:
            return False
        self._kv_cache.hold_blocks(new)
        for block_id in block_ids:
            counts[block_id] = counts.get(block_id, 0) + 1
        return True

    def unpin(self, block_ids: Sequence[int]) -> None:
        """Remove one pin from each block."""
        counts = self._counts
        unpinned = []
        for block_id in block_ids:
            counts[block_id] -= 1
            if not counts[block_id]:
                del counts[block_id]
                unpinned.append(block_id)
        if unpinned:
            self._kv_cache.release_blocks(unpinned)
