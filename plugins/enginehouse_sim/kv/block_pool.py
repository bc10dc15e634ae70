"""The blocks of one engine's device memory: who holds them, in which order they are reused, what is in them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from enginehouse_sim.kv.events import BlocksRemoved, CacheCleared, KvEvents


class BlockPool:
    """``num_blocks`` blocks with the ids from 0 on, of which block 0 is never handed out.

    A block that nobody holds is free, and is still found by the hash of its contents until it is handed out again. The
    block that was freed first is handed out first, and blocks that never were go before all of those. What was never
    handed out takes no memory here. All operations on one block take the same time however many there are.
    """

    def __init__(self, num_blocks: int, events: KvEvents | None = None) -> None:
        if num_blocks < 2:
            raise ValueError(f"a pool of {num_blocks} blocks has none to hand out: block 0 is kept back, so ask for 2")
        self.num_usable = num_blocks - 1
        self._events = events
        self._holders = [0]  # by block id, for the blocks handed out so far
        self._hashes: list[int | None] = [None]
        self._freed: OrderedDict[int, None] = OrderedDict()
        self._found: dict[int, int] = {}
        self._twins: dict[int, dict[int, None]] = {}  # further blocks with the contents of the one in _found

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out."""
        return self.num_usable - len(self._holders) + 1 + len(self._freed)

    @property
    def num_cached(self) -> int:
        """Different contents that can be found."""
        return len(self._found)

    def holders(self, block: int) -> int:
        """How many hold ``block``."""
        return self._holders[block] if block < len(self._holders) else 0

    def hash_of(self, block: int) -> int | None:
        """The name of what is in ``block``, if it can be found by it."""
        return self._hashes[block] if block < len(self._hashes) else None

    def find(self, content: int) -> int | None:
        """A block with this content."""
        return self._found.get(content)

    def count_free(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` nobody holds."""
        holders = self._holders
        return sum(not holders[block] for block in blocks)

    def count_held_once(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` have exactly one holder."""
        holders = self._holders
        return sum(holders[block] == 1 for block in blocks)

    def allocate(self, count: int) -> list[int]:
        """Hand out ``count`` blocks, one holder each; what was in them is forgotten. Never more than are free."""
        if count > self.num_free:
            raise ValueError(f"{count} blocks asked for, {self.num_free} are free: compare with num_free first")
        never_used = len(self._holders)
        fresh = range(never_used, min(never_used + count, self.num_usable + 1))
        blocks = list(fresh)
        self._holders.extend([1] * len(fresh))
        self._hashes.extend([None] * len(fresh))
        while len(blocks) < count:
            block, _ = self._freed.popitem(last=False)
            if self._hashes[block] is not None:
                self._forget(block)
            self._holders[block] = 1
            blocks.append(block)
        return blocks

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each of ``blocks``, which were found by their contents."""
        for block in blocks:
            if not self._holders[block]:
                del self._freed[block]
            self._holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less for each of ``blocks``, the last one first: the end of a sequence is reused first."""
        holders = self._holders
        for block in reversed(blocks):
            holders[block] -= 1
            if not holders[block]:
                self._freed[block] = None

    def store(self, block: int, content: int) -> bool:
        """``block`` can be found by its content from now on; ``True`` if nothing with this content could before."""
        self._hashes[block] = content
        if content in self._found:
            self._twins.setdefault(content, {})[block] = None
            return False
        self._found[content] = block
        return True

    def forget_all(self) -> bool:
        """Nothing is found any more; ``False``, and nothing done, while a block is held."""
        if self.num_free != self.num_usable:
            return False
        self._hashes = [None] * len(self._hashes)
        self._found.clear()
        self._twins.clear()
        if self._events is not None:
            self._events.add(CacheCleared())
        return True

    def _forget(self, block: int) -> None:
        content = self._hashes[block]
        assert content is not None
        self._hashes[block] = None
        twins = self._twins.get(content)
        if twins is None:
            del self._found[content]
            if self._events is not None:
                self._events.add(BlocksRemoved((content,)))
            return
        if self._found[content] == block:
            block = self._found[content] = next(iter(twins))
        del twins[block]
        if not twins:
            del self._twins[content]
