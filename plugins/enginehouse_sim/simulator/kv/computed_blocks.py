"""The result of a prefix cache lookup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ComputedBlocks(NamedTuple):
    """The longest cached prefix of a request: its blocks, and the number of tokens in them."""

    block_ids: Sequence[int]
    num_tokens: int


NOTHING_COMPUTED = ComputedBlocks((), 0)
