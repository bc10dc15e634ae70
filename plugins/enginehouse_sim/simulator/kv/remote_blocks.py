"""The registry of blocks that engines keep for other engines, between prefill and decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class Origin(NamedTuple):
    """The engine that keeps blocks, and its request that computed them."""

    engine_id: str
    request_id: str


def origin_in(params: Mapping[str, Any] | None, request_id: str) -> Origin | None:
    """The origin in ``kv_transfer_params``; its request is ``request_id`` if they name none."""
    if params is None or not params.get("do_remote_prefill") or "remote_engine_id" not in params:
        return None
    return Origin(str(params["remote_engine_id"]), str(params.get("remote_request_id", request_id)))


class RemoteBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """The keys and values of the first tokens of a request, in the blocks of the engine that computed them.

    ``block_hashes`` name the full blocks, ``beginning`` all ``num_tokens``. ``expires_at``: seconds on that engine's
    clock.
    """

    engine_id: str
    request_id: str
    num_tokens: int
    block_hashes: Sequence[int]
    beginning: int
    expires_at: float

    @property
    def origin(self) -> Origin:
        return Origin(self.engine_id, self.request_id)


class RemoteBlockRegistry:
    """The blocks that engines of this process keep, and those that it has learned of from other processes.

    ``on_release`` is called when learned blocks are no longer needed.
    """

    def __init__(self) -> None:
        self.on_release: Callable[[Origin], None] | None = None
        self._kept: dict[Origin, RemoteBlocks] = {}
        self._learned: set[Origin] = set()
        self._fetched: set[Origin] = set()
        self._released: dict[str, list[str]] = {}

    def publish(self, blocks: RemoteBlocks) -> None:
        """Add blocks that an engine of this process keeps."""
        self._kept[blocks.origin] = blocks

    def learn(self, blocks: RemoteBlocks) -> None:
        """Add blocks that an engine of another process keeps. That engine decides when they expire."""
        self._kept[blocks.origin] = blocks
        self._learned.add(blocks.origin)

    def withdraw(self, origin: Origin) -> None:
        """Remove blocks whose engine is gone."""
        self._kept.pop(origin, None)
        self._learned.discard(origin)
        self._fetched.discard(origin)

    def knows(self, origin: Origin) -> bool:
        return origin in self._kept

    def find(self, origin: Origin) -> RemoteBlocks | None:
        """The blocks, if they are kept and no engine fetches them."""
        return None if origin in self._fetched else self._kept.get(origin)

    def begin_fetch(self, origin: Origin) -> None:
        """Reserve the blocks for one fetch; they do not expire before they are released."""
        self._fetched.add(origin)

    def release(self, origin: Origin) -> None:
        """Note that the blocks are no longer needed. A second release does nothing."""
        if self._kept.pop(origin, None) is None:
            return
        self._fetched.discard(origin)
        if origin not in self._learned:
            self._released.setdefault(origin.engine_id, []).append(origin.request_id)
            return
        self._learned.remove(origin)
        if self.on_release is not None:
            self.on_release(origin)

    def take_released(self, engine_id: str, now: float) -> Sequence[str]:
        """The requests of an engine whose blocks were released or expired since the last call."""
        own = [blocks for origin, blocks in self._kept.items() if origin.engine_id == engine_id]
        for blocks in own:
            if blocks.expires_at <= now and blocks.origin not in self._fetched:
                self.release(blocks.origin)
        return self._released.pop(engine_id, ())
