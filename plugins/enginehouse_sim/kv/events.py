"""What routers are told of the prefix cache: which contents came, and which are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec


class BlocksStored(msgspec.Struct, frozen=True, tag=True):
    """Full blocks that follow each other can be found from now on; ``parent_hash`` names the block before them."""

    block_hashes: Sequence[int]
    parent_hash: int | None
    token_ids: Sequence[int]
    block_size: int
    lora: str | None = None


class BlocksRemoved(msgspec.Struct, frozen=True, tag=True):
    """No block with these contents is left."""

    block_hashes: Sequence[int]


class CacheCleared(msgspec.Struct, frozen=True, tag=True):
    """Everything was forgotten."""


KvEvent = BlocksStored | BlocksRemoved | CacheCleared


class KvEvents:
    """Collects events in the order in which they happened, until they are published.

    ``listener`` gets all of a step at once, when the step begins, and is not called for a step without any.
    """

    def __init__(self, listener: Callable[[Sequence[KvEvent]], None]) -> None:
        self._listener = listener
        self._pending: list[KvEvent] = []

    def add(self, event: KvEvent) -> None:
        """Keep it for the next step."""
        self._pending.append(event)

    def publish(self) -> None:
        """A step begins."""
        if self._pending:
            events, self._pending = self._pending, []
            self._listener(events)
