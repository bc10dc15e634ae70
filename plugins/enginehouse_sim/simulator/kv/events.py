"""Prefix cache events for KV-aware routers: contents stored and removed, under vLLM's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec


class BlockStored(msgspec.Struct, frozen=True, tag=True):
    """Consecutive full blocks can be found from now on; ``parent_block_hash`` is the block before them."""

    block_hashes: Sequence[int]
    parent_block_hash: int | None
    token_ids: Sequence[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = "GPU"
    lora_name: str | None = None


class BlockRemoved(msgspec.Struct, frozen=True, tag=True):
    """The last blocks with these contents were evicted."""

    block_hashes: Sequence[int]
    medium: str | None = "GPU"


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True):
    """All contents were dropped."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KvEvents:
    """Collects events in order, and publishes those of a step together when the next step begins.

    ``listener`` is not called for a step without events.
    """

    def __init__(self, listener: Callable[[Sequence[KvEvent]], None]) -> None:
        self._listener = listener
        self._pending: list[KvEvent] = []

    def add(self, event: KvEvent) -> None:
        self._pending.append(event)

    def publish(self) -> None:
        if self._pending:
            events, self._pending = self._pending, []
            self._listener(events)
