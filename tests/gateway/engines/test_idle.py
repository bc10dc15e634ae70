from __future__ import annotations

import math

import pytest

from enginehouse import ReplicaState
from enginehouse.engines.idle import IdleKeeper

READY = ReplicaState.READY


@pytest.fixture
def keeper() -> IdleKeeper:
    return IdleKeeper({"short": 10, "long": 100, "forever": 0})


ALL_READY = {"short": READY, "long": READY, "forever": READY}


def test_an_idle_replica_is_due_after_its_ttl_and_never_if_that_is_0(keeper: IdleKeeper) -> None:
    due = {now: list(keeper.due(ALL_READY, {}, now)) for now in (1000.0, 1009.9, 1010.0, 1100.0)}
    assert due == {1000.0: [], 1009.9: [], 1010.0: ["short"], 1100.0: ["long"]}


def test_the_ttl_counts_from_the_end_of_the_last_request(keeper: IdleKeeper) -> None:
    keeper.due(ALL_READY, {}, 0)
    keeper.used("short", 8)
    keeper.used("forever", 8)
    assert keeper.due(ALL_READY, {}, 17) == []
    assert keeper.due(ALL_READY, {}, 18) == ["short"]


def test_a_busy_replica_is_not_due_however_long_its_request_takes(keeper: IdleKeeper) -> None:
    keeper.due(ALL_READY, {}, 0)
    assert keeper.due(ALL_READY, {"short": 1}, 50) == []
    assert keeper.due(ALL_READY, {"short": 0}, 59) == []
    assert keeper.due(ALL_READY, {"short": 0}, 60) == ["short"]


def test_a_replica_that_became_ready_without_any_request_has_its_whole_ttl(keeper: IdleKeeper) -> None:
    keeper.used("short", 0)
    keeper.due({"short": ReplicaState.STOPPED}, {}, 5)
    assert keeper.due({"short": READY}, {}, 50) == []
    assert keeper.due({"short": READY}, {}, 60) == ["short"]


def test_a_replica_that_is_loaded_again_at_once_has_its_whole_ttl(keeper: IdleKeeper) -> None:
    keeper.due(ALL_READY, {}, 0)
    assert keeper.due(ALL_READY, {}, 10) == ["short"]
    assert keeper.due(ALL_READY, {}, 11) == []
    assert keeper.due(ALL_READY, {}, 21) == ["short"]


def test_a_sleeping_replica_is_not_due(keeper: IdleKeeper) -> None:
    keeper.due(ALL_READY, {}, 0)
    assert keeper.due({"short": ReplicaState.SLEEPING}, {}, 50) == []


def test_a_request_may_say_for_how_long_it_wants_the_replica_kept(keeper: IdleKeeper) -> None:
    keeper.used("short", 0, keep_alive=30)
    keeper.used("forever", 0, keep_alive=0)
    keeper.used("long", 0, keep_alive=math.inf)
    assert keeper.due(ALL_READY, {}, 29) == ["forever"]
    assert keeper.due(ALL_READY, {}, 1000) == ["short"]


def test_the_next_request_brings_the_ttl_back(keeper: IdleKeeper) -> None:
    keeper.used("short", 0, keep_alive=math.inf)
    keeper.used("forever", 0, keep_alive=5)
    keeper.used("short", 20)
    keeper.used("forever", 4)
    assert keeper.due(ALL_READY, {}, 29) == []
    assert keeper.due(ALL_READY, {}, 90) == ["short"]


def test_a_replica_that_stopped_starts_with_its_ttl_again(keeper: IdleKeeper) -> None:
    keeper.used("short", 0, keep_alive=1000)
    keeper.due({**ALL_READY, "short": ReplicaState.STOPPED}, {}, 1)
    keeper.due(ALL_READY, {}, 2)
    assert keeper.due(ALL_READY, {}, 12) == ["short"]
