"""A shared store of blocks, and the same store as one engine sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.external_store import ExternalStore, StoreSource
from enginehouse_sim.simulator.steps.transfer import KvShape, KvTransfer

New = Callable[..., RequestState]
HASHER = BlockHasher(4)
LINK = KvTransfer(KvShape(layers=1, kv_heads=1, head_dim=1, dtype_bytes=1), bandwidth=16)


@pytest.fixture
def source() -> StoreSource:
    return StoreSource(ExternalStore(), HASHER, LINK)


def test_the_search_ends_at_the_first_block_that_is_not_there() -> None:
    store = ExternalStore()
    store.put([1, 2, 4])
    assert [store.count_leading(hashes) for hashes in ([1, 2, 3, 4], [3, 1], [], [1, 2])] == [2, 0, 0, 2]


def test_the_least_recently_used_block_is_evicted_first_and_the_tail_of_a_sequence_before_its_head() -> None:
    store = ExternalStore(capacity=4)
    store.put([1, 2])
    store.put([3, 4])
    store.use([1, 9])
    store.put([5])
    assert len(store) == 4
    assert [store.count_leading([content]) for content in (1, 2, 3, 4, 5, 9)] == [1, 0, 1, 1, 1, 0]
    store.put([6])
    assert [store.count_leading([content]) for content in (1, 3, 4)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("length", "computed", "found"), [(4, 0, 0), (5, 0, 4), (12, 0, 8), (13, 0, 12), (13, 4, 8), (99, 0, 12)]
)
def test_full_blocks_behind_the_computed_ones_are_found_short_of_the_last_token(
    source: StoreSource, new_request: New, length: int, computed: int, found: int
) -> None:
    source.store.put(HASHER.of_tokens(range(12)))
    assert source.match(new_request(length), computed) == found


def test_a_prompt_whose_log_probabilities_are_wanted_is_not_loaded(source: StoreSource, new_request: New) -> None:
    source.store.put(HASHER.of_tokens(range(12)))
    assert source.match(new_request(12, prompt_logprobs=True), 0) == 0


def test_what_was_made_with_another_salt_is_not_found(source: StoreSource, new_request: New) -> None:
    source.store.put(HASHER.of_tokens(range(12), cache_salt="mine"))
    assert source.match(new_request(12), 0) == 0
    assert source.match(new_request(12, cache_salt="mine"), 0) == 8


@pytest.mark.parametrize(("loaded", "survives"), [(0, 0), (4, 4)])
def test_looking_is_no_use_and_loading_is(new_request: New, loaded: int, survives: int) -> None:
    source, request = StoreSource(ExternalStore(capacity=2), HASHER, LINK), new_request(5)
    source.store.put(HASHER.of_tokens(range(4)))
    source.store.put([1])
    assert source.match(request, 0) == 4
    source.claim(request, loaded)
    source.store.put([2])
    assert source.match(request, 0) == survives


def test_loading_takes_the_time_of_the_link(source: StoreSource) -> None:
    assert source.seconds(8) == pytest.approx(1.0)
