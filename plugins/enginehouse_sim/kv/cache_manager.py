"""The block tables of all requests, and what they share."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from enginehouse_sim.kv.block_hashes import BlockHasher
from enginehouse_sim.kv.block_pool import BlockPool
from enginehouse_sim.kv.events import BlocksStored, KvEvents
from enginehouse_sim.scheduler.constants import SchedulerConstants
from enginehouse_sim.scheduler.interfaces import NOTHING_COMPUTED, ComputedBlocks, KvCacheManager
from enginehouse_sim.scheduler.request import RequestState

_NEVER = sys.maxsize


class _BlockTable:
    """The blocks of one request: room for ``num_slots`` tokens; the first ``num_cached`` blocks can be found.

    ``caches_at``: with that many tokens one more block is full. Kept, because every step asks.
    """

    __slots__ = ("blocks", "caches_at", "num_cached", "num_slots")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.num_slots = 0
        self.num_cached = 0
        self.caches_at = _NEVER


class PagedKvCacheManager(KvCacheManager):
    """Blocks on demand, and full blocks shared by everyone who begins with the same tokens."""

    def __init__(self, constants: SchedulerConstants, events: KvEvents | None = None) -> None:
        self._block_size = constants.block_size
        self._max_model_len = constants.max_model_len
        self._caching = constants.enable_prefix_caching
        self._events = events
        self._hasher = BlockHasher(constants.block_size)
        self._tables: dict[str, _BlockTable] = {}
        self._kept: dict[int, int] = {}  # how often a block is held without being in a table
        self.pool = BlockPool(constants.total_gpu_blocks, events)

    def get_computed_blocks(self, request: RequestState, known: ComputedBlocks = NOTHING_COMPUTED) -> ComputedBlocks:
        """The longest cached beginning of the request, in full blocks, short of its last token. Holds nothing.

        Nothing for a request that wants the log-probabilities of its prompt: it has to compute all of it. ``known``: an
        earlier answer whose blocks are held, so that the search goes on behind it.
        """
        if not self._caching or request.prompt_logprobs:
            return NOTHING_COMPUTED
        hashes = self._hasher.extend(request)
        found: list[int] = []
        for content in hashes[len(known.block_ids) : (request.num_tokens - 1) // self._block_size]:
            block = self.pool.find(content)
            if block is None:
                break
            found.append(block)
        if not found:
            return known
        return ComputedBlocks((*known.block_ids, *found), known.num_tokens + len(found) * self._block_size)

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        """Keep blocks that were just found, so that nobody gets them for something else."""
        self.pool.hold(block_ids)
        for block in block_ids:
            self._kept[block] = self._kept.get(block, 0) + 1

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        """Let go of held blocks, last one first."""
        for block in block_ids:
            self._kept[block] -= 1
            if not self._kept[block]:
                del self._kept[block]
        self.pool.release(block_ids)

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
    ) -> Sequence[int] | None:
        """Make room; see the interface.

        ``computed`` and ``num_external_tokens`` are for a request that holds nothing yet; nothing else of it is
        computed then, whatever its counter says. Raises ``ValueError`` if blocks of ``computed`` were handed out to
        someone else since they were looked up: look again.
        """
        table = self._tables.get(request.request_id)
        if table is None:
            table = self._new_table(request, computed)
            end = computed.num_tokens + num_external_tokens + num_new_tokens
        else:
            end = request.num_computed_tokens + num_new_tokens
            if end < table.caches_at and end + num_lookahead_tokens <= table.num_slots:
                return ()
        held = len(table.blocks)
        missing = self._num_blocks(end + num_lookahead_tokens) - held
        wanted = max(missing, self._num_blocks(reserve_tokens) - held)
        revived = self.pool.count_free(computed.block_ids)
        if wanted + revived > 0 and wanted + revived > self.pool.num_free - leave_free:
            return None
        self.pool.hold(computed.block_ids)
        self._tables[request.request_id] = table
        new = self._append(table, missing)
        if not delay_cache_blocks and end >= table.caches_at:
            self._cache(request, table, end)
        return [*computed.block_ids, *new] if computed.block_ids else new

    def cache_blocks(self, request: RequestState, num_computed_tokens: int) -> None:
        """The full blocks of the first ``num_computed_tokens`` can be found from now on, if the request holds any."""
        table = self._tables.get(request.request_id)
        if table is not None and num_computed_tokens >= table.caches_at:
            self._cache(request, table, num_computed_tokens)

    def free(self, request: RequestState) -> None:
        """Give all blocks of the request back; nothing happens if it holds none."""
        table = self._tables.pop(request.request_id, None)
        if table is not None:
            self.pool.release(table.blocks)

    def get_block_ids(self, request_id: str) -> Sequence[int]:
        """The block table of a request; empty for one that holds nothing."""
        table = self._tables.get(request_id)
        return tuple(table.blocks) if table is not None else ()

    def get_num_common_prefix_blocks(self, request_id: str, num_running_requests: int) -> int:
        """How many leading blocks of this request all running ones share.

        Requests that hold blocks and do not run have to share them too: the answer may be too small, never too large.
        """
        table = self._tables.get(request_id)
        if table is None:
            return 0
        sharing = max(len(self._tables), num_running_requests)
        if sharing == 1:
            return len(table.blocks)
        for index, block in enumerate(table.blocks):
            if self.pool.holders(block) - self._kept.get(block, 0) < sharing:
                return index
        return len(table.blocks)

    def freeable_blocks(self, request_id: str) -> int:
        """How many blocks would be free if this request gave its own back: those that nobody else holds."""
        table = self._tables.get(request_id)
        return 0 if table is None else self.pool.count_held_once(table.blocks)

    def publish_events(self) -> None:
        """A step begins."""
        if self._events is not None:
            self._events.publish()

    def reset_prefix_cache(self) -> bool:
        """Forget what is cached; ``False``, and nothing done, while blocks are in use."""
        return self.pool.forget_all()

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be had now, cached ones that nobody holds among them."""
        return self.pool.num_free

    @property
    def usage(self) -> float:
        """The share of blocks that somebody holds, 0 to 1."""
        return 1 - self.pool.num_free / self.pool.num_usable

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

    def _append(self, table: _BlockTable, count: int) -> Sequence[int]:
        if count <= 0:
            return ()
        new = self.pool.allocate(count)
        table.blocks.extend(new)
        table.num_slots += count * self._block_size
        return new

    def _cache(self, request: RequestState, table: _BlockTable, num_tokens: int) -> None:
        """Make the full blocks of the first ``num_tokens`` findable; drafts are not part of ``request`` yet."""
        hashes = self._hasher.extend(request)
        first, end = table.num_cached, min(num_tokens // self._block_size, len(hashes))
        for index in range(first, end):
            is_new = self.pool.store(table.blocks[index], hashes[index])
            if is_new and self._events is not None:
                self._events.add(self._stored(request, index))
        table.num_cached = max(first, end)
        table.caches_at = (table.num_cached + 1) * self._block_size

    def _stored(self, request: RequestState, index: int) -> BlocksStored:
        hashes, size = request.block_hashes, self._block_size
        return BlocksStored(
            block_hashes=(hashes[index],),
            parent_hash=hashes[index - 1] if index else None,
            token_ids=tuple(request.all_token_ids[index * size : (index + 1) * size]),
            block_size=size,
            lora=request.lora,
        )
