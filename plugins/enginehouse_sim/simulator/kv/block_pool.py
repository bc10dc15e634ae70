"""The blocks of one engine's device memory: content hashes, reference counts, eviction order."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from enginehouse_sim.simulator.domain.asked import MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.events import AllBlocksCleared, BlockRemoved, KvEvents

_HASH_BYTES = 8
_TOKEN_BYTES = 8
_62_BITS: Final = (1 << 62) - 1


class BlockHasher:
    """Hashes each full block of ``block_size`` tokens to 64 bits.

    A hash covers the block's tokens, the hash of the previous block and, where they matter, the LoRA adapter, the cache
    salt and the multimodal inputs, as vLLM's extra keys do. Equal hashes therefore mean equal keys and values.
    ``is_local``: requests have tokens alone, and no other process needs the hashes, which take a tenth of the time.
    """

    def __init__(self, block_size: int, *, is_local: bool = False) -> None:
        self.block_size = block_size
        self._is_local = is_local

    def extend(self, request: RequestState) -> list[int]:
        """The hashes of all full blocks of ``request``. Appends missing hashes to its ``block_hashes``.

        Tokens are signed 64-bit numbers.
        """
        hashes, token_ids, size = request.block_hashes, request.all_token_ids, self.block_size
        first, end, asked = len(hashes), len(token_ids) // size, request.asked
        if first >= end:
            return hashes
        if self._is_local:
            for index in range(first, end):
                block = tuple(token_ids[index * size : (index + 1) * size])
                hashes.append(hash((hashes[-1] if hashes else 0, block)) & _62_BITS)
            return hashes
        tokens = token_ids[first * size : end * size]
        data = struct.pack(f"<{len(tokens)}q", *tokens)
        # The hash input before the next block: the previous hash, or the keys that separate equal prompts.
        parent = hashes[-1].to_bytes(_HASH_BYTES, "little") if hashes else _written(asked.lora, asked.cache_salt)
        for index in range(first, end):
            at = (index - first) * size * _TOKEN_BYTES
            content = parent + data[at : at + size * _TOKEN_BYTES]
            if request.mm_inputs:
                content += _inputs_within(request.mm_inputs, index * size, size)
            parent = blake2b(content, digest_size=_HASH_BYTES).digest()
            hashes.append(int.from_bytes(parent, "little"))
        return hashes


def _inputs_within(mm_inputs: Sequence[MultiModalInput], begin: int, size: int) -> bytes:
    return b"".join(
        _written(mm.identifier, str(mm.offset - begin))
        for mm in mm_inputs
        if mm.offset < begin + size and mm.offset + mm.length > begin
    )


def _written(*parts: str | None) -> bytes:
    """An unambiguous encoding: different lists of parts never have the same bytes."""
    texts = [None if part is None else part.encode(errors="surrogatepass") for part in parts]
    return b"".join(b"-" if text is None else b"%d:%b" % (len(text), text) for text in texts)


class BlockPool:
    """``num_blocks`` blocks with ids from 0; block 0 is vLLM's null block, which the pool never hands out.

    A block without references is free, but its content can still be found until the pool hands the block out again. The
    pool first hands out freed blocks whose content cannot be found, the last one freed first. Then come blocks that
    were never used, and then the other freed ones in the order in which they became free. Blocks that were never handed
    out take no memory here. Every operation on one block takes constant time.
    """

    def __init__(self, num_blocks: int, events: KvEvents | None = None) -> None:
        if num_blocks < 2:
            raise ValueError(f"a pool of {num_blocks} blocks has none to hand out: block 0 is kept back, so ask for 2")
        self.num_usable = num_blocks - 1
        self._events = events
        self._ref_counts = [0]  # by block id, of the blocks handed out so far
        self._hashes: list[int | None] = [None]
        self._freed: OrderedDict[int, None] = OrderedDict()  # the oldest first
        self._freed_uncached: list[int] = []
        self._by_hash: dict[int, int] = {}
        self._duplicates: dict[int, dict[int, None]] = {}  # further blocks with the content of the one in _by_hash

    @property
    def num_free(self) -> int:
        return self.num_usable - len(self._ref_counts) + 1 + len(self._freed) + len(self._freed_uncached)

    @property
    def num_cached(self) -> int:
        """The number of different contents that can be found."""
        return len(self._by_hash)

    def hash_of(self, block: int) -> int | None:
        """The content hash under which ``block`` can be found, if any."""
        return self._hashes[block] if block < len(self._hashes) else None

    def find(self, content: int) -> int | None:
        """A block with this content, if there is one."""
        return self._by_hash.get(content)

    def count_free(self, blocks: Iterable[int]) -> int:
        holders = self._ref_counts
        return sum(not holders[block] for block in blocks)

    def count_unshared(self, blocks: Iterable[int]) -> int:
        """The number of ``blocks`` with exactly one reference."""
        holders = self._ref_counts
        return sum(holders[block] == 1 for block in blocks)

    def allocate(self, count: int) -> list[int]:
        """Hand out ``count`` blocks with one reference each, and evict their content.

        Raises ``ValueError`` if fewer are free.
        """
        if count > self.num_free:
            raise ValueError(f"{count} blocks asked for, {self.num_free} are free: compare with num_free first")
        holders, hashes = self._ref_counts, self._hashes
        uncached = self._freed_uncached
        blocks = [uncached.pop() for _ in range(min(count, len(uncached)))]
        for block in blocks:
            holders[block] = 1
        never_used = len(holders)
        if never_used <= self.num_usable:
            fresh = range(never_used, min(never_used + count - len(blocks), self.num_usable + 1))
            blocks.extend(fresh)
            holders.extend([1] * len(fresh))
            hashes.extend([None] * len(fresh))
        for _ in range(count - len(blocks)):
            block, _ = self._freed.popitem(last=False)
            if hashes[block] is not None:
                self._evict(block)
            holders[block] = 1
            blocks.append(block)
        return blocks

    def hold(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if not self._ref_counts[block]:
                del self._freed[block]
            self._ref_counts[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Remove a reference from each of ``blocks``, last one first: vLLM evicts the tail of a sequence first."""
        holders, hashes, freed = self._ref_counts, self._hashes, self._freed
        uncached = []
        for block in reversed(blocks):
            holders[block] = count = holders[block] - 1
            if count:
                continue
            if hashes[block] is not None:
                freed[block] = None
            else:
                uncached.append(block)
        self._freed_uncached.extend(reversed(uncached))

    def store(self, blocks: Sequence[int], contents: Sequence[int]) -> Sequence[int]:
        """Make ``blocks`` findable by their contents, which differ. Return the indices of the contents that are new."""
        hashes, by_hash = self._hashes, self._by_hash
        if len(blocks) == 1 and contents[0] not in by_hash:
            hashes[blocks[0]], by_hash[contents[0]] = contents[0], blocks[0]
            return range(1)
        for block, content in zip(blocks, contents, strict=True):
            hashes[block] = content
        if by_hash.keys().isdisjoint(contents):
            by_hash.update(zip(contents, blocks, strict=True))
            return range(len(blocks))
        new = []
        for place, (block, content) in enumerate(zip(blocks, contents, strict=True)):
            if content in by_hash:
                self._duplicates.setdefault(content, {})[block] = None
            else:
                by_hash[content] = block
                new.append(place)
        return new

    def reset(self) -> bool:
        """Drop all content hashes. Return ``False``, and do nothing, while a block has references."""
        if self.num_free != self.num_usable:
            return False
        self._hashes = [None] * len(self._hashes)
        self._by_hash.clear()
        self._duplicates.clear()
        if self._events is not None:
            self._events.add(AllBlocksCleared())
        return True

    def _evict(self, block: int) -> None:
        content = self._hashes[block]
        assert content is not None
        self._hashes[block] = None
        twins = self._duplicates.get(content)
        if twins is None:
            del self._by_hash[content]
            if self._events is not None:
                self._events.add(BlockRemoved((content,)))
            return
        if self._by_hash[content] == block:
            block = self._by_hash[content] = next(iter(twins))
        del twins[block]
        if not twins:
            del self._duplicates[content]
