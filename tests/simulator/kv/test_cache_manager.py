"""Block tables: room for tokens, all or nothing, and shared blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.cache_manager import NOTHING_COMPUTED, KvCacheManager

New = Callable[..., RequestState]
Manager = Callable[..., KvCacheManager]
Compute = Callable[..., None]


def test_a_prompt_gets_as_many_blocks_as_it_fills_in_part(new_request: New, new_manager: Manager) -> None:
    manager, request = new_manager(), new_request(9)
    assert manager.allocate_slots(request, 9) == [1, 2, 3]
    assert manager.get_block_ids(request.request_id) == (1, 2, 3)
    assert manager.num_free_blocks == 7
    assert manager.usage == pytest.approx(0.3)


def test_decoding_gets_a_block_when_the_last_one_is_full_and_nothing_otherwise(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request = new_manager(), new_request(3)
    compute(manager, request)
    got = []
    for token in range(6):
        request.append(token)
        got.append(list(manager.allocate_slots(request, 1) or ()))
        request.num_computed_tokens += 1
    assert got == [[], [2], [], [], [], [3]]


def test_room_is_all_or_nothing(new_request: New, new_manager: Manager) -> None:
    manager, request = new_manager(2), new_request(9)
    assert manager.allocate_slots(request, 9) is None
    assert (manager.num_free_blocks, manager.get_block_ids(request.request_id)) == (2, ())


def test_a_running_request_that_is_refused_keeps_what_it_has(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request = new_manager(2), new_request(12)
    compute(manager, request, 4)
    assert manager.allocate_slots(request, 8) is None
    assert manager.get_block_ids(request.request_id) == (1,)
    assert manager.allocate_slots(request, 4) == [2]


def test_cached_blocks_without_references_count_as_needed(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, first, second = new_manager(3), new_request(9), new_request(13)
    compute(manager, first)
    manager.free(first)
    hit = manager.get_computed_blocks(second)
    assert (hit.num_tokens, manager.num_free_blocks) == (8, 3)
    assert manager.allocate_slots(second, 5, computed=hit) is None
    assert manager.allocate_slots(second, 4, computed=hit) == [1, 2, 3]


def test_cached_blocks_with_references_cost_nothing(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, first, second = new_manager(4), new_request(9), new_request(9)
    compute(manager, first)
    compute(manager, second)
    assert manager.get_block_ids(second.request_id) == (1, 2, 4)
    assert manager.num_free_blocks == 0


def test_a_hit_that_was_handed_out_to_someone_else_meanwhile_is_refused(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, first, second = new_manager(3), new_request(9), new_request(9)
    compute(manager, first)
    manager.free(first)
    hit = manager.get_computed_blocks(second)
    compute(manager, new_request([7] * 12))
    manager.free(first)
    with pytest.raises(ValueError, match="block 1 no longer holds"):
        manager.allocate_slots(second, 1, computed=hit)


def test_room_for_drafts_is_kept_behind_the_tokens(new_request: New, new_manager: Manager) -> None:
    manager, request = new_manager(), new_request(4)
    assert manager.allocate_slots(request, 4, num_lookahead_tokens=5) == [1, 2, 3]


def test_room_for_drafts_grows_with_a_running_request(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(), new_request(4)
    compute(manager, request, 2)
    assert manager.allocate_slots(request, 1, num_lookahead_tokens=1) == ()
    assert manager.allocate_slots(request, 1, num_lookahead_tokens=2) == [2]


def test_nothing_is_kept_beyond_the_longest_sequence(new_request: New, new_manager: Manager) -> None:
    manager, request = new_manager(max_model_len=6), new_request(5)
    assert manager.allocate_slots(request, 5, num_lookahead_tokens=9, reserve_tokens=100, leave_free=8) == [1, 2]


def test_a_request_is_refused_unless_what_is_reserved_would_fit(new_request: New, new_manager: Manager) -> None:
    manager, request = new_manager(3), new_request(16)
    assert manager.allocate_slots(request, 4, reserve_tokens=13) is None
    assert manager.allocate_slots(request, 4, reserve_tokens=12) == [1]


def test_blocks_that_must_stay_free_stay_free(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(3), new_request(8)
    assert manager.allocate_slots(request, 8, leave_free=2) is None
    assert manager.allocate_slots(request, 4, leave_free=2) == [1]
    request.num_computed_tokens = 3
    assert manager.allocate_slots(request, 1, leave_free=2) == ()
    assert manager.allocate_slots(request, 1, leave_free=3) is None


def test_a_request_that_holds_nothing_has_nothing_computed_whatever_its_counter_says(
    new_request: New, new_manager: Manager
) -> None:
    manager, request = new_manager(), new_request(4)
    request.num_computed_tokens = 20
    assert manager.allocate_slots(request, 4) == [1]


def test_blocks_are_given_back_from_the_end(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(3), new_request(12)
    compute(manager, request)
    manager.free(request)
    manager.free(request)
    assert manager.get_block_ids(request.request_id) == ()
    assert manager.allocate_slots(new_request([9]), 1) == [3]


def test_freeable_blocks_have_no_other_holder(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, first, second = new_manager(), new_request(9), new_request(15)
    compute(manager, first)
    assert manager.freeable_blocks(first.request_id) == 3
    compute(manager, second)
    assert (manager.freeable_blocks(first.request_id), manager.freeable_blocks(second.request_id)) == (1, 2)
    manager.pool.hold(manager.get_block_ids(first.request_id))
    assert manager.freeable_blocks(first.request_id) == 0
    assert manager.freeable_blocks("unknown") == 0


def test_the_cache_is_reset_only_while_no_blocks_are_held(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request = new_manager(), new_request(9)
    compute(manager, request)
    assert not manager.reset_prefix_cache()
    assert manager.get_computed_blocks(request).num_tokens == 8
    manager.free(request)
    assert manager.reset_prefix_cache()
    assert manager.get_computed_blocks(request) is NOTHING_COMPUTED
