from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginehouse.config.schema import KvEventSettings
from enginehouse_kit.block_events import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    EventsComplete,
    EventsLost,
)
from enginehouse_kit.cache_events import RankedCache, of_rank


def stored(*hashes: int) -> BlocksStored:
    return BlocksStored(hashes, None, [], 4)


def removed(events: Sequence[CacheEvent]) -> list[object]:
    return [block for each in events if isinstance(each, BlocksRemoved) for block in each.hashes]


def test_an_engine_has_a_block_while_one_rank_has_it() -> None:
    cache = RankedCache(2)
    for rank, hashes in enumerate(([1, 2], [2, 3])):
        assert [*cache.happened(rank, [stored(*hashes)])] == [stored(*hashes)]
    assert removed([*cache.happened(0, [BlocksRemoved([1, 2])])]) == [1]
    assert removed([*cache.happened(1, [BlocksRemoved([2])])]) == [2]


def test_a_rank_that_was_cleared_takes_nothing_from_the_others() -> None:
    cache = RankedCache(2)
    [*cache.happened(0, [stored(1, 2)]), *cache.happened(1, [stored(2, 3)])]
    assert removed([*cache.happened(1, [CacheCleared()])]) == [3]


def test_all_is_known_when_it_is_of_each_rank() -> None:
    cache = RankedCache(2)
    assert EventsComplete() not in cache.happened(0, [CacheCleared()])
    assert EventsComplete() in [*cache.happened(1, [CacheCleared()])]
    assert [*cache.happened(0, [EventsLost()])] == [EventsLost()]
    assert EventsComplete() not in cache.happened(1, [CacheCleared()])
    assert EventsComplete() in [*cache.happened(0, [CacheCleared()])]


@pytest.mark.parametrize("replay", ["", "tcp://h:6000"])
def test_ranks_have_ports_one_after_the_other(replay: str) -> None:
    settings = KvEventSettings(endpoint="tcp://[::1]:5557", replay=replay, topic="kv", ranks=3)
    third = of_rank(settings, 2)
    assert (third.endpoint, third.replay, third.topic) == ("tcp://[::1]:5559", replay and "tcp://h:6002", "kv")
    assert of_rank(settings, 0).endpoint == settings.endpoint
