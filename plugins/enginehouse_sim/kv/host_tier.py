"""Host memory to which requests that have to make room are moved, and from which they return."""

from __future__ import annotations

import msgspec

from enginehouse_sim.kv.block_hashes import BlockHasher
from enginehouse_sim.kv.source import KvSource
from enginehouse_sim.scheduler.interfaces import KvCacheManager
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.steps.transfer import KvTransfer


class KvMove(msgspec.Struct, frozen=True):
    """What a move brings: ``num_tokens`` need not be computed again, ``num_blocks`` are copied, in so many seconds."""

    num_tokens: int
    num_blocks: int
    seconds: float


class HostTier(KvSource):
    """``num_blocks`` blocks of host memory.

    A move out has two ends, since blocks cannot be reused while they are copied: ``offload`` begins it, ``offloaded``
    ends it. So has the way back: ``restore`` and ``restored``, or, if this is one of the connector's sources, through
    the scheduler's admission. Only whole blocks move; what is behind them has to be computed again. Equal blocks of
    several requests are kept once. What a request keeps here is given up when it is back, or when it ended.
    """

    def __init__(self, kv_cache: KvCacheManager, hasher: BlockHasher, num_blocks: int, transfer: KvTransfer) -> None:
        self.num_blocks = num_blocks
        self._kv_cache = kv_cache
        self._hasher = hasher
        self._transfer = transfer
        self._kept: dict[str, list[int]] = {}  # the hashes of each request's blocks
        self._holders: dict[int, int] = {}
        self._copying: set[str] = set()

    @property
    def num_free_blocks(self) -> int:
        """Host blocks that nothing is kept in."""
        return self.num_blocks - len(self._holders)

    @property
    def version(self) -> int:
        """What is kept of a request that waits stays here."""
        return 0

    def holds(self, request_id: str) -> bool:
        """Whether something of the request is kept here, or on its way."""
        return request_id in self._kept

    def offload(self, request: RequestState) -> KvMove | None:
        """Begin to copy the computed blocks of ``request``; ``None``, and nothing done, if there is too little room.

        No step may be under way for the request, nor begin before ``offloaded``. Raises ``ValueError`` if it is here.
        """
        if request.request_id in self._kept:
            raise ValueError(f"request {request.request_id!r} was offloaded already: restore it first")
        num_blocks = min(request.num_computed_tokens, request.num_tokens - 1) // self._hasher.block_size
        hashes = self._hasher.extend(request)[:num_blocks]
        missing = sum(content not in self._holders for content in hashes)
        if missing > self.num_free_blocks:
            return None
        for content in hashes:
            self._holders[content] = self._holders.get(content, 0) + 1
        self._kept[request.request_id] = hashes
        self._copying.add(request.request_id)
        size = self._hasher.block_size
        return KvMove(num_blocks * size, missing, self.seconds(missing * size))

    def offloaded(self, request: RequestState) -> int:
        """All is copied: the request gives its device blocks back. How many more are free now."""
        self._copying.discard(request.request_id)
        before = self._kv_cache.num_free_blocks
        self._kv_cache.free(request)
        return self._kv_cache.num_free_blocks - before

    def restore(self, request: RequestState, *, leave_free: int = 0) -> KvMove | None:
        """Give an offloaded request device blocks again and begin to fill them; ``None`` if too few are free.

        What device memory still knows is not copied. ``leave_free``: blocks that must remain free.
        """
        hit = self._kv_cache.get_computed_blocks(request)
        num_tokens = self.match(request, hit.num_tokens)
        blocks = self._kv_cache.allocate_slots(
            request,
            0,
            computed=hit,
            num_external_tokens=num_tokens,
            delay_cache_blocks=True,
            leave_free=leave_free,
        )
        if blocks is None:
            return None
        return KvMove(hit.num_tokens + num_tokens, num_tokens // self._hasher.block_size, self.seconds(num_tokens))

    def restored(self, request: RequestState, move: KvMove) -> None:
        """All is back: others may find it, and host memory gives it up."""
        self._kv_cache.cache_blocks(request, move.num_tokens)
        self.delivered(request.request_id)

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """What the request keeps here, once all of it is copied."""
        if request.request_id in self._copying:
            return 0
        num_tokens = len(self._kept.get(request.request_id, ())) * self._hasher.block_size
        return max(0, num_tokens - num_computed_tokens)

    def seconds(self, num_tokens: int) -> float:
        """The time between host and device for so many tokens."""
        return self._transfer.seconds(num_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """A request that runs again without what is kept of it does not need that any more."""
        if not num_tokens:
            self._give_up(request.request_id)

    def delivered(self, request_id: str) -> None:
        """The request is back in device memory: what is kept of it is given up."""
        self._give_up(request_id)

    def forget(self, request: RequestState) -> None:
        """The request ended: what is kept of it is given up."""
        self._give_up(request.request_id)

    def _give_up(self, request_id: str) -> None:
        self._copying.discard(request_id)
        for content in self._kept.pop(request_id, ()):
            self._holders[content] -= 1
            if not self._holders[content]:
                del self._holders[content]
