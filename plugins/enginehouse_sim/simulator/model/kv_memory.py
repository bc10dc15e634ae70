"""A model of the KV cache's content. With it, tests prove that blocks are allocated, shared and freed correctly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32


class InconsistentBlocks(Exception):
    """A request reads content that is not its own, or writes where it must not."""


class CachedSequence(NamedTuple):
    """A request as the cache sees it: its tokens, drafts included, its block table, and its ``salt``."""

    request_id: str
    tokens: Sequence[int]
    block_ids: Sequence[int]
    salt: str = ""


class KvMemory:
    """Remembers for each slot which token was computed into it, and after which prefix.

    For tests: its work grows with the context.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}

    def write(self, sequence: CachedSequence, start: int, stop: int) -> None:
        """Compute or load the tokens from ``start`` to ``stop``. Raises ``InconsistentBlocks``."""
        self._check_table(sequence, stop)
        marks = _marks(sequence, stop)
        for position in range(start, stop):
            self._slots[self._slot(sequence, position)] = marks[position]

    def read(self, sequence: CachedSequence, stop: int) -> None:
        """Read all tokens before ``stop``, after the step's writes. Raises ``InconsistentBlocks``."""
        marks = _marks(sequence, stop)
        for position in range(stop):
            if self._slots.get(self._slot(sequence, position)) != marks[position]:
                raise InconsistentBlocks(
                    f"{sequence.request_id} reads token {position} in block "
                    f"{sequence.block_ids[position // self._block_size]}, which holds something else"
                )

    def _slot(self, sequence: CachedSequence, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_size)
        return sequence.block_ids[block], offset

    def _check_table(self, sequence: CachedSequence, stop: int) -> None:
        blocks = sequence.block_ids
        if len(blocks) * self._block_size < stop:
            raise InconsistentBlocks(f"{sequence.request_id} has {len(blocks)} blocks for {stop} tokens")
        if len(set(blocks)) != len(blocks) or 0 in blocks:
            raise InconsistentBlocks(f"{sequence.request_id} has block 0, or a block twice: {list(blocks)}")


def _marks(sequence: CachedSequence, stop: int) -> list[int]:
    """For each token a number that stands for the whole prefix up to it."""
    mark = crc32(sequence.salt.encode())
    marks = []
    for token in sequence.tokens[:stop]:
        mark = hash((mark, token))
        marks.append(mark)
    return marks
