"""What of a request is found in the cache, from when on, and what others are told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.events import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent, KvEvents

New = Callable[..., RequestState]
Manager = Callable[..., KvCacheManager]
Compute = Callable[..., None]


@pytest.mark.parametrize(("length", "found"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (20, 12)])
def test_full_blocks_are_found_short_of_the_last_token(
    new_request: New, new_manager: Manager, compute: Compute, length: int, found: int
) -> None:
    manager = new_manager()
    compute(manager, new_request(14))
    hit = manager.get_computed_blocks(new_request(length))
    assert (hit.num_tokens, len(hit.block_ids)) == (found, found // 4)


def test_looking_holds_nothing(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, first = new_manager(), new_request(9)
    compute(manager, first)
    manager.free(first)
    manager.get_computed_blocks(new_request(9))
    assert manager.num_free_blocks == 10


def test_the_search_ends_at_the_first_block_that_is_missing(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager = new_manager()
    compute(manager, new_request(12))
    other = new_request([*range(4), 99, *range(5, 13)])
    assert manager.get_computed_blocks(other).num_tokens == 4


def test_without_prefix_caching_nothing_is_found(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(enable_prefix_caching=False), new_request(9)
    compute(manager, request)
    manager.cache_blocks(request, 9)
    assert manager.get_computed_blocks(new_request(9)).num_tokens == 0
    assert request.block_hashes == []


def test_a_block_is_found_as_soon_as_its_last_token_is_scheduled(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request, other = new_manager(), new_request(6), new_request([*range(6), 60, 70, 80])
    compute(manager, request)
    found = []
    for token in (60, 70, 80):
        request.append(token)
        manager.allocate_slots(request, 1)
        request.num_computed_tokens += 1
        found.append(manager.get_computed_blocks(other).num_tokens)
    assert found == [4, 8, 8]


def test_only_what_is_computed_is_found(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(), new_request(16)
    compute(manager, request, 7)
    assert manager.get_computed_blocks(new_request(16)).num_tokens == 4


def test_drafts_are_never_found(new_request: New, new_manager: Manager, compute: Compute) -> None:
    manager, request = new_manager(), new_request(6)
    compute(manager, request)
    request.append(6)
    request.spec_token_ids = [7, 8, 9]
    manager.allocate_slots(request, 4)
    assert manager.get_computed_blocks(new_request(9)).num_tokens == 4
    request.num_computed_tokens = 7  # all drafts were wrong
    request.append(77)
    manager.allocate_slots(request, 1)
    assert manager.get_computed_blocks(new_request(9)).num_tokens == 4
    assert manager.get_computed_blocks(new_request([*range(7), 77, 0])).num_tokens == 8


def test_what_is_still_being_loaded_is_found_after_it_arrived(new_request: New, new_manager: Manager) -> None:
    manager, request, other = new_manager(), new_request(10), new_request(10)
    assert manager.allocate_slots(request, 2, num_external_tokens=8, delay_cache_blocks=True) == [1, 2, 3]
    assert manager.get_computed_blocks(other).num_tokens == 0
    manager.cache_blocks(request, 7)
    assert manager.get_computed_blocks(other).num_tokens == 4
    manager.cache_blocks(request, 8)
    assert manager.get_computed_blocks(other).num_tokens == 8


def test_a_request_that_lost_its_blocks_has_nothing_to_be_found(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request = new_manager(), new_request(9)
    compute(manager, request, 3)
    manager.free(request)
    manager.cache_blocks(request, 9)
    assert manager.get_computed_blocks(new_request(9)).num_tokens == 0


def test_what_is_loaded_within_the_step_is_found_at_once(new_request: New, new_manager: Manager) -> None:
    manager, request = new_manager(), new_request(10)
    manager.allocate_slots(request, 2, num_external_tokens=8)
    assert manager.get_computed_blocks(new_request(10)).num_tokens == 8


def test_a_preempted_request_finds_its_own_blocks_again(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    manager, request = new_manager(), new_request(10)
    compute(manager, request)
    manager.free(request)
    request.num_computed_tokens = 0
    assert manager.get_computed_blocks(request).block_ids == (1, 2)


def test_requests_that_compute_the_same_at_once_keep_their_own_blocks(new_request: New, new_manager: Manager) -> None:
    manager, first, second = new_manager(6), new_request(8), new_request(8)
    manager.allocate_slots(first, 8)
    manager.allocate_slots(second, 8)
    assert manager.get_block_ids(second.request_id) == (3, 4)
    manager.free(first)
    manager.allocate_slots(new_request([7] * 16), 16)
    assert manager.get_computed_blocks(new_request(9)).block_ids == (3, 4)


def test_a_router_hears_of_contents_that_come_and_go_when_the_step_begins(
    new_request: New, new_manager: Manager, compute: Compute
) -> None:
    heard: list[Sequence[KvEvent]] = []
    events = KvEvents(heard.append)
    manager, request = new_manager(2, events), new_request(8, lora="terse")
    compute(manager, request)
    assert heard == []
    events.publish()
    events.publish()
    first, second = request.block_hashes
    assert heard.pop() == [
        BlockStored((first,), None, (0, 1, 2, 3), 4, lora_name="terse"),
        BlockStored((second,), first, (4, 5, 6, 7), 4, lora_name="terse"),
    ]
    assert heard == []
    manager.free(request)
    compute(manager, other := new_request([9]))
    manager.free(other)
    manager.reset_prefix_cache()
    events.publish()
    assert heard == [[BlockRemoved((second,)), AllBlocksCleared()]]


def test_a_router_hears_of_contents_once_however_many_blocks_hold_them(new_request: New, new_manager: Manager) -> None:
    heard: list[Sequence[KvEvent]] = []
    events = KvEvents(heard.append)
    manager, first, second = new_manager(2, events), new_request(4), new_request(4)
    manager.allocate_slots(first, 4)
    manager.allocate_slots(second, 4)
    manager.free(first)
    manager.allocate_slots(third := new_request([7]), 1)
    events.publish()
    assert [type(event) for event in heard.pop()] == [BlockStored]
    manager.free(third)
    manager.free(second)
    manager.allocate_slots(new_request([7]), 1)
    manager.allocate_slots(new_request([7]), 1)
    events.publish()
    assert heard == [[BlockRemoved((first.block_hashes[0],))]]
