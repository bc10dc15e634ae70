"""The block tables of all requests, and the prefixes that they share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_pool import BlockHasher, BlockPool
from enginehouse_sim.simulator.kv.events import BlockStored, KvEvents


class ComputedBlocks(NamedTuple):
    """The longest cached prefix of a request: its blocks, and the number of tokens in them."""

    block_ids: Sequence[int]
    num_tokens: int


NOTHING_COMPUTED = ComputedBlocks((), 0)


_NEVER = sys.maxsize


class _BlockTable:
    """The blocks of one request, with room for ``num_slots`` tokens. The first ``num_cached`` blocks can be found.

    ``caches_at``: the number of tokens that fills one more block, kept because every step compares with it.
    """

    __slots__ = ("blocks", "caches_at", "num_cached", "num_slots")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.num_slots = 0
        self.num_cached = 0
        self.caches_at = _NEVER


class KvCacheManager:
    """Allocates blocks on demand. Requests with an equal prefix share its full blocks.

    Block 0 is vLLM's null block, so ``total_gpu_blocks - 1`` of ``total_gpu_blocks`` configured blocks are usable.
    ``hasher``: by default one whose hashes are the same in every process.
    """

    def __init__(
        self, constants: SchedulerConstants, events: KvEvents | None = None, hasher: BlockHasher | None = None
    ) -> None:
        self._block_size = constants.block_size
        self._max_model_len = constants.max_model_len
        self._caching = constants.enable_prefix_caching
        self._events = events
        self._hasher = hasher or BlockHasher(constants.block_size)
        self._tables: dict[str, _BlockTable] = {}
        self._drops_last_block = constants.use_spec_decode
        self.pool = BlockPool(constants.total_gpu_blocks, events)

    def get_computed_blocks(self, request: RequestState) -> ComputedBlocks:
        """The longest cached prefix in full blocks, without the request's last token. Takes no references."""
        if not self._caching:
            return NOTHING_COMPUTED
        hashes = self._hasher.extend(request)
        found: list[int] = []
        for content in hashes[: (request.num_tokens - 1) // self._block_size]:
            block = self.pool.find(content)
            if block is None:
                break
            found.append(block)
        if self._drops_last_block:
            del found[-1:]
        if not found:
            return NOTHING_COMPUTED
        return ComputedBlocks(tuple(found), len(found) * self._block_size)

    def allocate_slots(
        self,
        request: RequestState,
        num_new_tokens: int,
        *,
        computed: ComputedBlocks = NOTHING_COMPUTED,
        num_external_tokens: int = 0,
        num_lookahead_tokens: int = 0,
        delay_cache_blocks: bool = False,
        reserve_tokens: int = 0,
        leave_free: int = 0,
        reserved_blocks: int = 0,
    ) -> Sequence[int] | None:
        """Allocate blocks for ``num_new_tokens`` after the computed, cached and loaded ones; all or nothing.

        Return the ids of the new blocks, those of ``computed`` included, or ``None`` if too few are free. ``computed``
        and ``num_external_tokens`` are for a request without blocks. ``num_lookahead_tokens``: room for drafts.
        ``reserve_tokens``: also return ``None`` if this many tokens in all would not fit now. ``leave_free``: blocks
        that must stay free. ``reserved_blocks``: the blocks that must stay free after this allocation; those for
        ``reserve_tokens`` may be among them. ``delay_cache_blocks``: the content arrives later, so other requests must
        not find it yet.

        The scheduler does not call this for a single token inside a block that the request has (``fast_path_until``).
        Raises ``ValueError`` if blocks of ``computed`` were evicted since the lookup.
        """
        table = self._tables.get(request.request_id)
        if table is None:
            table = self._new_table(request, computed)
            end = computed.num_tokens + num_external_tokens + num_new_tokens
        else:
            end = request.num_computed_tokens + num_new_tokens
            if not leave_free and end < table.caches_at and end + num_lookahead_tokens <= table.num_slots:
                return ()
        missing = wanted = max(self._num_blocks(end + num_lookahead_tokens) - len(table.blocks), 0)
        if reserve_tokens or reserved_blocks:
            wanted = max(missing + reserved_blocks, self._num_blocks(reserve_tokens) - len(table.blocks))
        if computed.block_ids:
            wanted += self.pool.count_free(computed.block_ids)
        if wanted + leave_free > self.pool.num_free:
            return None
        new = self._allocate(request, table, computed, missing)
        if not delay_cache_blocks and end >= table.caches_at:
            self._cache(request, table, end)
        return new

    def cache_blocks(self, request: RequestState, num_computed_tokens: int) -> None:
        """Let other requests find the full blocks of the first ``num_computed_tokens``, if the request has blocks."""
        table = self._tables.get(request.request_id)
        if table is not None and num_computed_tokens >= table.caches_at:
            self._cache(request, table, num_computed_tokens)

    def free(self, request: RequestState) -> None:
        """Release all blocks of the request, last one first. Their content can be found until they are reused."""
        table = self._tables.pop(request.request_id, None)
        if table is not None:
            self.pool.release(table.blocks)

    def get_block_ids(self, request_id: str) -> Sequence[int]:
        """The block table of a request; empty if it has none."""
        table = self._tables.get(request_id)
        return tuple(table.blocks) if table is not None else ()

    def freeable_blocks(self, request_id: str) -> int:
        """The number of blocks that freeing this request would free: those without other references."""
        table = self._tables.get(request_id)
        return 0 if table is None else self.pool.count_unshared(table.blocks)

    @property
    def publishes_events(self) -> bool:
        """Whether a listener gets an event for each block that is stored or removed."""
        return self._events is not None

    def publish_events(self) -> None:
        """Publish the events since the previous step; called when a step begins."""
        if self._events is not None:
            self._events.publish()

    def reset_prefix_cache(self) -> bool:
        """Drop all cached content. Return ``False``, and do nothing, while blocks are in use."""
        return self.pool.reset()

    def num_missing_blocks(self, request_id: str, num_tokens: int) -> int:
        """The blocks that a request needs for ``num_tokens`` besides those it has."""
        table = self._tables.get(request_id)
        return max(0, -(-num_tokens // self._block_size) - (len(table.blocks) if table is not None else 0))

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be allocated now, including cached ones without references."""
        return self.pool.num_free

    @property
    def usage(self) -> float:
        return self.usage_with(0)

    def usage_with(self, num_more: int) -> float:
        """The share if ``num_more`` of the free blocks were in use."""
        return 1 - (self.pool.num_free - num_more) / self.pool.num_usable

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-min(num_tokens, self._max_model_len) // self._block_size)

    def _new_table(self, request: RequestState, computed: ComputedBlocks) -> _BlockTable:
        for block, content in zip(computed.block_ids, request.block_hashes, strict=False):
            if self.pool.hash_of(block) != content:
                raise ValueError(
                    f"block {block} no longer holds what request {request.request_id!r} found in it: "
                    "call get_computed_blocks again"
                )
        table = _BlockTable()
        table.blocks.extend(computed.block_ids)
        table.num_slots = computed.num_tokens
        table.num_cached = len(computed.block_ids)
        if self._caching:
            table.caches_at = computed.num_tokens + self._block_size
        return table

    def _allocate(
        self, request: RequestState, table: _BlockTable, computed: ComputedBlocks, count: int
    ) -> Sequence[int]:
        self.pool.hold(computed.block_ids)
        self._tables[request.request_id] = table
        if not count:
            return computed.block_ids
        new = self.pool.allocate(count)
        table.blocks.extend(new)
        table.num_slots += count * self._block_size
        return [*computed.block_ids, *new] if computed.block_ids else new

    def _cache(self, request: RequestState, table: _BlockTable, num_tokens: int) -> None:
        """Make the full blocks of the first ``num_tokens`` findable. Drafts are not part of ``request`` yet."""
        hashes = self._hasher.extend(request)
        first, end = table.num_cached, min(num_tokens // self._block_size, len(hashes))
        new = self.pool.store(table.blocks[first:end], hashes[first:end])
        if self._events is not None:
            for place in new:
                self._events.add(self._stored(request, first + place))
        table.num_cached = max(first, end)
        table.caches_at = (table.num_cached + 1) * self._block_size

    def _stored(self, request: RequestState, index: int) -> BlockStored:
        hashes, size = request.block_hashes, self._block_size
        return BlockStored(
            block_hashes=(hashes[index],),
            parent_block_hash=hashes[index - 1] if index else None,
            token_ids=tuple(request.all_token_ids[index * size : (index + 1) * size]),
            block_size=size,
            lora_name=request.asked.lora,
        )
