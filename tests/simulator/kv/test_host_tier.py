"""Moving requests to host memory and back: copies, freed blocks, surviving content."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enginehouse_sim.simulator.core.offloading import HostTier, KvMove
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.steps.costs import KvShape, KvTransfer
from tests.support.host_restore import begin_restore, finish_restore

New = Callable[..., RequestState]
Manager = Callable[..., KvCacheManager]
Compute = Callable[..., None]
HASHER = BlockHasher(4)
LINK = KvTransfer(KvShape(layers=1, kv_heads=1, head_dim=1, dtype_bytes=1), bandwidth=16)


def move_out(host: HostTier, request: RequestState) -> int:
    assert host.begin_offload(request) is not None
    freed = host.finish_offload(request)
    request.num_computed_tokens = 0
    return freed


def test_whole_blocks_are_copied_and_all_blocks_become_free(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request = new_manager(), new_request(11)
    host = HostTier(manager, HASHER, 5, LINK)
    compute(manager, request)
    assert host.begin_offload(request) == KvMove(8, 2, 1.0)
    assert (manager.num_free_blocks, host.num_free_blocks) == (7, 3)
    assert host.finish_offload(request) == 3
    assert (manager.num_free_blocks, manager.get_block_ids(request.request_id)) == (10, ())


def test_shared_blocks_are_copied_and_do_not_become_free(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, first, second = new_manager(), new_request(11), new_request(11)
    host = HostTier(manager, HASHER, 5, LINK)
    compute(manager, first)
    compute(manager, second)
    assert manager.freeable_blocks(first.request_id) == 1
    assert move_out(host, first) == 1
    assert host.num_free_blocks == 3


def test_equal_blocks_are_kept_and_copied_once(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, first, second = new_manager(), new_request(9), new_request(13)
    host = HostTier(manager, HASHER, 3, LINK)
    compute(manager, first)
    compute(manager, second)
    move_out(host, first)
    move = host.begin_offload(second)
    assert move is not None
    assert (move.num_tokens, move.num_blocks, host.num_free_blocks) == (12, 1, 0)
    host.release(first)
    assert host.num_free_blocks == 0
    host.release(second)
    assert host.num_free_blocks == 3


def test_a_move_is_all_or_nothing(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(), new_request(13)
    host = HostTier(manager, HASHER, 2, LINK)
    compute(manager, request)
    assert host.begin_offload(request) is None
    assert host.num_free_blocks == 2


def test_a_request_that_is_here_is_not_moved_again(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(), new_request(9)
    host = HostTier(manager, HASHER, 4, LINK)
    compute(manager, request)
    move_out(host, request)
    with pytest.raises(ValueError, match="restore it first"):
        host.begin_offload(request)


def test_nothing_is_found_before_all_is_copied(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(), new_request(9)
    host = HostTier(manager, HASHER, 4, LINK)
    compute(manager, request)
    host.begin_offload(request)
    assert host.match(request, 0) == 0
    host.finish_offload(request)
    assert [host.match(request, computed) for computed in (0, 4, 8, 12)] == [8, 4, 0, 0]


def test_drafts_and_the_last_token_are_not_moved(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(), new_request(8)
    host = HostTier(manager, HASHER, 4, LINK)
    compute(manager, request)
    request.num_computed_tokens = 12  # with four drafts
    move = host.begin_offload(request)
    assert move is not None
    assert move.num_tokens == 4


def test_what_was_overwritten_on_the_device_comes_back_from_the_host(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request, other = new_manager(3), new_request(11), new_request([7] * 8)
    host = HostTier(manager, HASHER, 5, LINK)
    compute(manager, request)
    move_out(host, request)
    compute(manager, other)
    assert begin_restore(manager, host, request) is None
    manager.free(other)
    move = begin_restore(manager, host, request)
    assert move is not None
    assert (move.num_tokens, move.num_blocks) == (8, 1)
    assert move.seconds == pytest.approx(0.5)
    assert len(manager.get_block_ids(request.request_id)) == 2
    assert manager.get_computed_blocks(new_request(11)).num_tokens == 4
    finish_restore(manager, host, request, move)
    assert manager.get_computed_blocks(new_request(11)).num_tokens == 8
    assert host.num_free_blocks == 5


def test_a_restored_request_continues_after_its_last_whole_block(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request = new_manager(enable_prefix_caching=False), new_request(11)
    host = HostTier(manager, HASHER, 5, LINK)
    compute(manager, request)
    move_out(host, request)
    move = begin_restore(manager, host, request)
    assert move is not None
    assert (move.num_tokens, move.num_blocks) == (8, 2)
    request.num_computed_tokens = move.num_tokens
    assert len(manager.allocate_slots(request, 3) or ()) == 1


def test_blocks_that_must_stay_free_stay_free(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(3), new_request(9)
    host = HostTier(manager, HASHER, 5, LINK)
    compute(manager, request)
    move_out(host, request)
    assert begin_restore(manager, host, request, leave_free=2) is None
    assert begin_restore(manager, host, request, leave_free=1) is not None


@pytest.mark.parametrize("copied", [False, True])
def test_a_request_that_ends_gives_host_memory_up(
    new_request: New, new_manager: Manager, compute: Compute, copied: bool
) -> None:
    manager, request = new_manager(), new_request(9)
    host = HostTier(manager, HASHER, 4, LINK)
    compute(manager, request)
    host.begin_offload(request)
    if copied:
        host.finish_offload(request)
    host.release(request)
    assert (host.num_free_blocks, host.match(request, 0)) == (4, 0)
    request.num_computed_tokens = 9
    assert host.begin_offload(request) is not None
