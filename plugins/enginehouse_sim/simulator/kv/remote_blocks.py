"""The registry of blocks that engines keep for one another, between prefill and decode."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class RemoteBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and values of the first tokens of a request, in the blocks of the engine that computed them.

    ``block_hashes`` name the full blocks, ``beginning`` all ``num_tokens``. ``expires_at``: seconds on the engines'
    clock.
    """

    engine_id: str
    request_id: str
    num_tokens: int
    block_hashes: Sequence[int]
    beginning: int
    expires_at: float


class RemoteBlockRegistry:
    """All published blocks of the engines in one process. ``version`` changes when some are released."""

    def __init__(self) -> None:
        self.version = 0
        self._published: dict[str, dict[str, RemoteBlocks]] = {}
        self._fetched: set[tuple[str, str]] = set()
        self._released: dict[str, list[str]] = {}

    def publish(self, blocks: RemoteBlocks) -> None:
        self._published.setdefault(blocks.engine_id, {})[blocks.request_id] = blocks

    def find(self, engine_id: str, request_id: str) -> RemoteBlocks | None:
        """The blocks, if they are published and no engine fetches them."""
        if (engine_id, request_id) in self._fetched:
            return None
        return self._published.get(engine_id, {}).get(request_id)

    def begin_fetch(self, engine_id: str, request_id: str) -> None:
        """Reserve the blocks for one fetch; they do not expire before they are released."""
        self._fetched.add((engine_id, request_id))

    def release(self, engine_id: str, request_id: str) -> None:
        """The blocks are no longer needed. Releasing twice is no error."""
        if self._published.get(engine_id, {}).pop(request_id, None) is None:
            return
        self._fetched.discard((engine_id, request_id))
        self._released.setdefault(engine_id, []).append(request_id)
        self.version += 1

    def take_released(self, engine_id: str, now: float) -> Sequence[str]:
        """The requests of an engine whose blocks were released or expired since the last call."""
        expired = [
            blocks.request_id
            for blocks in self._published.get(engine_id, {}).values()
            if blocks.expires_at <= now and (engine_id, blocks.request_id) not in self._fetched
        ]
        for request_id in expired:
            self.release(engine_id, request_id)
        return self._released.pop(engine_id, ())
