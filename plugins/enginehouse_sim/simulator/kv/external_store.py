"""A store of blocks that several engines share, found by content hash."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.source import KvSource
from enginehouse_sim.simulator.steps.transfer import KvTransfer


class BlockStore(ABC):
    """Keeps blocks up to a capacity. It evicts the least recently used ones, the tail of a sequence first."""

    @abstractmethod
    def count_leading(self, hashes: Sequence[int]) -> int:
        """The number of leading blocks that are stored, up to the first missing one."""

    @abstractmethod
    def put(self, hashes: Sequence[int]) -> None:
        """Store these blocks of one sequence; blocks already stored count as used."""

    @abstractmethod
    def use(self, hashes: Sequence[int]) -> None:
        """Mark these blocks of one sequence as used; missing ones stay missing."""


class ExternalStore(BlockStore):
    """A store for the engines of one process; without a ``capacity``, any number of blocks."""

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def count_leading(self, hashes: Sequence[int]) -> int:
        for index, content in enumerate(hashes):
            if content not in self._blocks:
                return index
        return len(hashes)

    def put(self, hashes: Sequence[int]) -> None:
        for content in reversed(hashes):
            self._blocks[content] = None
            self._blocks.move_to_end(content)
        while self._capacity is not None and len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def use(self, hashes: Sequence[int]) -> None:
        self.put([content for content in hashes if content in self._blocks])


class StoreSource(KvSource):
    """The store as a KV source of one engine, over a link of its own."""

    def __init__(
        self, store: BlockStore, hasher: BlockHasher, transfer: KvTransfer, *, load_async: bool = True
    ) -> None:
        self.load_async = load_async
        self.store = store
        self._hasher = hasher
        self.transfer = transfer

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        return self.store.count_leading(self._behind(request, num_computed_tokens)) * self._hasher.block_size

    def claim(self, request: RequestState, num_tokens: int) -> None:
        if num_tokens:
            self.store.use(self._behind(request, 0))

    def _behind(self, request: RequestState, num_computed_tokens: int) -> Sequence[int]:
        if request.prompt_logprobs:
            return ()
        size = self._hasher.block_size
        return self._hasher.extend(request)[num_computed_tokens // size : (request.num_tokens - 1) // size]
