"""What is in each slot of the KV cache: the proof that blocks are handed out, shared and freed rightly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32


class InconsistentBlocks(Exception):
    """A request reads something that is not its own, or writes where it may not."""


class Occupant(NamedTuple):
    """A request, as the cache sees it: its tokens, drafts behind them, its block table, and what keeps it apart."""

    request_id: str
    tokens: Sequence[int]
    block_ids: Sequence[int]
    salt: str = ""


class KvMemory:
    """Remembers for each slot which token was computed into it, and behind which others.

    For tests: its work grows with the context, where an engine's does not.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}

    def write(self, occupant: Occupant, start: int, stop: int) -> None:
        """Tokens ``start`` to ``stop`` are computed, or came from outside. Raises ``InconsistentBlocks``."""
        self._check_table(occupant, stop)
        marks = _marks(occupant, stop)
        for position in range(start, stop):
            self._slots[self._slot(occupant, position)] = marks[position]

    def read(self, occupant: Occupant, stop: int) -> None:
        """All tokens before ``stop`` are read, after a step wrote what it computes. Raises ``InconsistentBlocks``."""
        marks = _marks(occupant, stop)
        for position in range(stop):
            if self._slots.get(self._slot(occupant, position)) != marks[position]:
                raise InconsistentBlocks(
                    f"{occupant.request_id} reads token {position} in block "
                    f"{occupant.block_ids[position // self._block_size]}, which holds something else"
                )

    def _slot(self, occupant: Occupant, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_size)
        return occupant.block_ids[block], offset

    def _check_table(self, occupant: Occupant, stop: int) -> None:
        blocks = occupant.block_ids
        if len(blocks) * self._block_size < stop:
            raise InconsistentBlocks(f"{occupant.request_id} has {len(blocks)} blocks for {stop} tokens")
        if len(set(blocks)) != len(blocks) or 0 in blocks:
            raise InconsistentBlocks(f"{occupant.request_id} has block 0, or a block twice: {list(blocks)}")


def _marks(occupant: Occupant, stop: int) -> list[int]:
    """For each token a number that stands for it and everything before it."""
    mark = crc32(occupant.salt.encode())
    marks = []
    for token in occupant.tokens[:stop]:
        mark = hash((mark, token))
        marks.append(mark)
    return marks
