"""A store of blocks that several engines share, found by the names of their contents."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from enginehouse_sim.kv.block_hashes import BlockHasher
from enginehouse_sim.kv.source import KvSource
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.steps.transfer import KvTransfer


class ExternalStore:
    """Up to ``capacity`` blocks, or any number; what was used longest ago goes first, the end of a sequence before it.

    ``version`` changes whenever a block goes.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.version = 0
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def count_leading(self, hashes: Sequence[int]) -> int:
        """How many of the blocks are here, up to the first that is not."""
        for index, content in enumerate(hashes):
            if content not in self._blocks:
                return index
        return len(hashes)

    def put(self, hashes: Sequence[int]) -> None:
        """Keep these blocks of one sequence; those that are here already count as used."""
        for content in reversed(hashes):
            self._blocks[content] = None
            self._blocks.move_to_end(content)
        if self._capacity is not None and len(self._blocks) > self._capacity:
            self.version += 1
            while len(self._blocks) > self._capacity:
                self._blocks.popitem(last=False)

    def use(self, hashes: Sequence[int]) -> None:
        """These blocks of one sequence are read; those that are gone stay so."""
        self.put([content for content in hashes if content in self._blocks])


class StoreSource(KvSource):
    """The store as one engine sees it, through a link of its own."""

    def __init__(
        self, store: ExternalStore, hasher: BlockHasher, transfer: KvTransfer, *, load_async: bool = True
    ) -> None:
        self.load_async = load_async
        self.store = store
        self._hasher = hasher
        self._transfer = transfer

    @property
    def version(self) -> int:
        """Changes when the store lost a block."""
        return self.store.version

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """Full blocks, short of the request's last token."""
        return self.store.count_leading(self._behind(request, num_computed_tokens)) * self._hasher.block_size

    def seconds(self, num_tokens: int) -> float:
        """The link's time for so many tokens."""
        return self._transfer.seconds(num_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """What is read counts as used."""
        if num_tokens:
            self.store.use(self._behind(request, 0))

    def _behind(self, request: RequestState, num_computed_tokens: int) -> Sequence[int]:
        if request.prompt_logprobs:
            return ()
        size = self._hasher.block_size
        return self._hasher.extend(request)[num_computed_tokens // size : (request.num_tokens - 1) // size]
