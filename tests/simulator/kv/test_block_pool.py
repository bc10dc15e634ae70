from __future__ import annotations

import sys

import pytest

from enginehouse_sim.simulator.kv.block_pool import BlockPool


def test_block_0_is_never_handed_out() -> None:
    pool = BlockPool(4)
    assert (pool.num_usable, pool.num_free) == (3, 3)
    assert pool.allocate(3) == [1, 2, 3]
    with pytest.raises(ValueError, match="1 blocks asked for, 0 are free"):
        pool.allocate(1)


def test_a_pool_without_a_block_to_hand_out_is_refused() -> None:
    with pytest.raises(ValueError, match="ask for 2"):
        BlockPool(1)


def test_a_large_pool_costs_nothing_until_it_is_used() -> None:
    pool = BlockPool(10**9)
    assert pool.allocate(2) == [1, 2]
    assert sys.getsizeof(pool._ref_counts) < 1000
    assert pool.num_free == 10**9 - 3


def test_a_released_sequence_with_content_is_reused_from_its_end_and_after_blocks_never_used() -> None:
    pool = BlockPool(6)
    blocks = pool.allocate(3)
    for block in blocks:
        pool.store([block], [70 + block])
    pool.release(blocks)
    assert pool.allocate(5) == [4, 5, 3, 2, 1]


def test_content_that_was_released_first_is_reused_first() -> None:
    pool = BlockPool(5)
    first, second = pool.allocate(2), pool.allocate(2)
    for block in (*first, *second):
        pool.store([block], [70 + block])
    pool.release(second)
    pool.release(first)
    assert pool.allocate(4) == [4, 3, 2, 1]


def test_blocks_without_content_are_reused_first_and_the_last_released_one_before_others() -> None:
    pool = BlockPool(6)
    first, second = pool.allocate(2), pool.allocate(2)
    pool.store(first[:1], [77])
    pool.release(first)
    pool.release(second)
    assert pool.allocate(5) == [4, 3, 2, 5, 1]


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(1)
    pool.hold(blocks)
    pool.release(blocks)
    assert (pool.count_unshared([1]), pool.num_free) == (1, 1)
    pool.release(blocks)
    assert (pool.count_free([1]), pool.num_free) == (1, 2)


def test_content_is_found_until_its_block_is_handed_out_again() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    assert pool.store([block], [77])
    pool.release([block])
    assert pool.find(77) == block
    assert pool.allocate(1) == [block]
    assert pool.find(77) is None
    assert pool.hash_of(block) is None


def test_a_held_block_that_was_free_is_not_handed_out() -> None:
    pool = BlockPool(3)
    one, two = pool.allocate(2)
    pool.store([two], [77])
    pool.release([one, two])
    pool.hold([two])
    assert pool.allocate(1) == [one]
    assert pool.num_free == 0


@pytest.mark.parametrize("gone_first", [0, 1, 2])
def test_content_in_several_blocks_is_found_until_the_last_of_them_is_reused(gone_first: int) -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    assert [list(pool.store([block], [77])) for block in blocks] == [[0], [], []]
    order = [blocks[gone_first], *(block for block in blocks if block != blocks[gone_first])]
    for left, block in zip((2, 1, 0), order, strict=True):
        pool.release([block])
        assert pool.allocate(1) == [block]
        assert (pool.find(77) in order[-left:]) is (left > 0)


def test_the_pool_is_reset_only_while_nothing_is_held() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(1)
    pool.store([1], [77])
    assert not pool.reset()
    assert pool.find(77) == 1
    pool.release(blocks)
    assert pool.reset()
    assert (pool.find(77), pool.hash_of(1), pool.num_cached) == (None, None, 0)


def test_blocks_that_are_shared_again_and_again_take_no_more_memory_and_keep_their_order() -> None:
    pool = BlockPool(9)
    blocks = pool.allocate(8)
    pool.store(blocks, range(100, 108))
    pool.release(blocks)
    for _ in range(5_000):
        pool.hold(blocks[:4])
        pool.release(blocks[:4])

    assert len(pool._freed) < 2_000
    assert pool.num_free == 8
    assert pool.allocate(8) == [*blocks[:3:-1], *blocks[3::-1]], "those that became free first come first"
