"""Disaggregated prefill: one engine computes the prompt, another one decodes. An engine can do either."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.connector import KvSource
from enginehouse_sim.simulator.steps.costs import KvTransfer


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


FETCH_TIMEOUT = 480.0
"""Seconds for which an engine keeps blocks: the default of vLLM's ``VLLM_NIXL_ABORT_REQUEST_TIMEOUT``."""


class KvAddress(NamedTuple):
    """The address at which other engines reach the blocks that this one keeps: its name and its side channel."""

    engine_id: str
    registry: RemoteBlockRegistry
    host: str = "127.0.0.1"
    port: int = 0


class Disaggregation(KvSource):
    """Follows ``kv_transfer_params`` with the keys of vLLM's NIXL connector.

    A request with ``do_remote_decode`` that finishes by its length publishes its blocks, and its client gets the
    ``kv_transfer_params`` for the decoding engine. A request with ``do_remote_prefill`` fetches the blocks that its
    parameters name, as far as they hold its own tokens; if they are gone, it computes its prompt.
    """

    def __init__(
        self,
        address: KvAddress,
        hasher: BlockHasher,
        transfer: KvTransfer,
        now: Callable[[], float],
    ) -> None:
        self._engine_id = address.engine_id
        self._registry = address.registry
        self._hasher = hasher
        self.transfer = transfer
        self._now = now
        self._address = address
        self._fetching: dict[str, Origin] = {}

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """Up to all tokens of the request: the last block may be partly filled."""
        origin = _origin_of(request)
        blocks = self._registry.find(origin) if origin is not None else None
        if blocks is None:
            return 0
        return max(0, self._num_common_tokens(request, blocks) - num_computed_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """Begin to fetch, or release the blocks at the other engine."""
        origin = _origin_of(request)
        if origin is None:
            return
        if num_tokens:
            self._registry.begin_fetch(origin)
            self._fetching[request.request_id] = origin
        elif self._registry.find(origin) is not None:
            self._registry.release(origin)

    def delivered(self, request_id: str) -> None:
        self._registry.release(self._fetching.pop(request_id))

    def release(self, request: RequestState) -> None:
        self.claim(request, 0)

    def keeps(self, request: RequestState, block_ids: Sequence[int]) -> Mapping[str, Any] | None:
        params = request.kv_transfer_params
        wanted = params is not None and params.get("do_remote_decode")
        if not wanted or not block_ids or request.status is not RequestStatus.FINISHED_LENGTH_CAPPED:
            return None
        return self.publish(request, block_ids)

    def publish(self, request: RequestState, block_ids: Sequence[int]) -> Mapping[str, Any]:
        """Let another engine fetch the computed blocks of a request; return the ``kv_transfer_params`` for it.

        The blocks must be kept until ``finished_sending`` names the request.
        """
        num_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        hashes = self._hasher.extend(request)[: num_tokens // self._hasher.block_size]
        self._registry.publish(
            RemoteBlocks(
                engine_id=self._engine_id,
                request_id=request.request_id,
                num_tokens=num_tokens,
                block_hashes=tuple(hashes),
                beginning=self._hasher.of_beginning(request, num_tokens),
                expires_at=self._now() + FETCH_TIMEOUT,
            )
        )
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self._engine_id,
            "remote_request_id": request.request_id,
            "remote_block_ids": list(block_ids),
            "remote_host": self._address.host,
            "remote_port": self._address.port,
            "tp_size": 1,
        }

    def finished_sending(self) -> Sequence[str]:
        """Requests whose blocks were fetched or expired since the last call."""
        return self._registry.take_released(self._engine_id, self._now())

    def _num_common_tokens(self, request: RequestState, blocks: RemoteBlocks) -> int:
        if self._hasher.of_beginning(request, blocks.num_tokens) == blocks.beginning:
            return blocks.num_tokens
        pairs = zip(self._hasher.extend(request), blocks.block_hashes, strict=False)
        same = takewhile(lambda pair: pair[0] == pair[1], pairs)
        return sum(1 for _ in same) * self._hasher.block_size


def _origin_of(request: RequestState) -> Origin | None:
    return origin_in(request.kv_transfer_params, request.request_id)
