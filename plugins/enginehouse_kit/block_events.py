"""What engines tell of their prefix caches, as drivers report it and strategies hear it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = [
    "BlockHash",
    "BlocksRemoved",
    "BlocksStored",
    "CacheCleared",
    "CacheEvent",
    "EventsComplete",
    "EventsLost",
]

BlockHash = int | bytes
"""The engine's own name of a block and all blocks before it."""


class BlocksStored(msgspec.Struct, frozen=True):
    """Consecutive blocks can be found in the cache from now on.

    ``parent``: the block before them; ``None`` at the beginning of a prompt. ``lora``: the adapter, empty for none.
    """

    hashes: Sequence[BlockHash]
    parent: BlockHash | None
    tokens: Sequence[int]
    block_size: int
    lora: str = ""


class BlocksRemoved(msgspec.Struct, frozen=True):
    """The cache no longer has these blocks."""

    hashes: Sequence[BlockHash]


class CacheCleared(msgspec.Struct, frozen=True):
    """The cache is empty, and all that follows is complete."""


class EventsLost(msgspec.Struct, frozen=True):
    """Events are missing, so what is known of the cache may be wrong until it is cleared."""


class EventsComplete(msgspec.Struct, frozen=True):
    """All that the cache has is known. It says so itself if it is empty."""


CacheEvent = BlocksStored | BlocksRemoved | CacheCleared | EventsLost | EventsComplete
