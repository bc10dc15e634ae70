"""Host memory for the KV blocks of requests that make room on the device."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import KvSource
from enginehouse_sim.simulator.steps.costs import KvTransfer


class KvMove(msgspec.Struct, frozen=True):
    """A move of ``num_tokens`` to host memory: copying ``num_blocks``, which are not there yet, takes ``seconds``."""

    num_tokens: int
    num_blocks: int
    seconds: float


class HostTier(KvSource):
    """``num_blocks`` blocks of host memory.

    Blocks cannot be reused while they are copied, so an offload has two ends: ``begin_offload`` and ``finish_offload``.
    Admission restores, because the tier is a source of the connector. Only whole blocks move; the engine recomputes the
    tokens after them. Requests share equal blocks. The tier drops a request's blocks when the request is back on the
    device, or has finished.
    """

    def __init__(self, kv_cache: KvCacheManager, hasher: BlockHasher, num_blocks: int, transfer: KvTransfer) -> None:
        self.num_blocks = num_blocks
        self._kv_cache = kv_cache
        self._hasher = hasher
        self.transfer = transfer
        self._kept: dict[str, list[int]] = {}  # the hashes of each request's blocks
        self._holders: dict[int, int] = {}
        self._copying: set[str] = set()

    @property
    def num_free_blocks(self) -> int:
        return self.num_blocks - len(self._holders)

    def has_room_for(self, request: RequestState) -> bool:
        """Whether the computed blocks of ``request`` would fit now."""
        return self._num_missing(self._computed(request)) <= self.num_free_blocks

    def begin_offload(self, request: RequestState) -> KvMove | None:
        """Begin to copy the computed blocks of ``request``. Return ``None``, and do nothing, if they do not fit.

        No step may compute for the request until ``finish_offload``. Raises ``ValueError`` if it is offloaded already.
        """
        if request.request_id in self._kept:
            raise ValueError(f"request {request.request_id!r} was offloaded already: restore it first")
        hashes = self._computed(request)
        missing = self._num_missing(hashes)
        if missing > self.num_free_blocks:
            return None
        for content in hashes:
            self._holders[content] = self._holders.get(content, 0) + 1
        self._kept[request.request_id] = hashes
        self._copying.add(request.request_id)
        size = self._hasher.block_size
        return KvMove(len(hashes) * size, missing, self.seconds(missing * size))

    def finish_offload(self, request: RequestState) -> int:
        """The copy is complete: free the device blocks. Return how many more blocks are free now."""
        self._copying.discard(request.request_id)
        before = self._kv_cache.num_free_blocks
        self._kv_cache.free(request)
        return self._kv_cache.num_free_blocks - before

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """The offloaded tokens of the request, once their copy is complete."""
        if request.request_id in self._copying:
            return 0
        num_tokens = len(self._kept.get(request.request_id, ())) * self._hasher.block_size
        return max(0, num_tokens - num_computed_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        if not num_tokens:
            self._discard(request.request_id)

    def delivered(self, request_id: str) -> None:
        self._discard(request_id)

    def release(self, request: RequestState) -> None:
        self._discard(request.request_id)

    def _computed(self, request: RequestState) -> list[int]:
        """The hashes of the computed blocks whose tokens are known."""
        num_blocks = min(request.num_computed_tokens, request.num_tokens - 1) // self._hasher.block_size
        return self._hasher.extend(request)[:num_blocks]

    def _num_missing(self, hashes: Sequence[int]) -> int:
        return sum(content not in self._holders for content in hashes)

    def _discard(self, request_id: str) -> None:
        self._copying.discard(request_id)
        for content in self._kept.pop(request_id, ()):
            self._holders[content] -= 1
            if not self._holders[content]:
                del self._holders[content]
