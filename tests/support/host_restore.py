"""Restoring from host memory in one call: what admission does over several steps."""

from __future__ import annotations

from enginehouse_sim.simulator.core.offloading import HostTier, KvMove
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager


def begin_restore(
    kv_cache: KvCacheManager, host: HostTier, request: RequestState, block_size: int = 4, leave_free: int = 0
) -> KvMove | None:
    """Allocate device blocks for an offloaded request; ``None`` if too few are free."""
    hit = kv_cache.get_computed_blocks(request)
    num_tokens = host.match(request, hit.num_tokens)
    blocks = kv_cache.allocate_slots(
        request, 0, computed=hit, num_external_tokens=num_tokens, delay_cache_blocks=True, leave_free=leave_free
    )
    if blocks is None:
        return None
    return KvMove(hit.num_tokens + num_tokens, num_tokens // block_size, host.seconds(num_tokens))


def finish_restore(kv_cache: KvCacheManager, host: HostTier, request: RequestState, move: KvMove) -> None:
    """The copy is complete: other requests may find the blocks, and host memory drops them."""
    kv_cache.cache_blocks(request, move.num_tokens)
    host.delivered(request.request_id)
