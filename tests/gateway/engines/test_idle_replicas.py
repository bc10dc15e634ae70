from __future__ import annotations

import math

import pytest

from enginehouse import ReplicaState
from enginehouse.engines.idle_replicas import IdleReplicas

READY = ReplicaState.READY


@pytest.fixture
def idle() -> IdleReplicas:
    return IdleReplicas()


TTLS = {"short": 10.0, "long": 100.0, "forever": 0.0}
ALL_READY = {"short": READY, "long": READY, "forever": READY}


def test_an_idle_replica_is_due_after_its_ttl_and_never_if_that_is_0(idle: IdleReplicas) -> None:
    due = {now: list(idle.due(ALL_READY, {}, TTLS, now)) for now in (1000.0, 1009.9, 1010.0, 1100.0)}
    assert due == {1000.0: [], 1009.9: [], 1010.0: ["short"], 1100.0: ["long"]}


def test_the_ttl_counts_from_the_end_of_the_last_request(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, {}, TTLS, 0)
    idle.used("short", 8)
    idle.used("forever", 8)
    assert idle.due(ALL_READY, {}, TTLS, 17) == []
    assert idle.due(ALL_READY, {}, TTLS, 18) == ["short"]


def test_a_busy_replica_is_not_due_however_long_its_request_takes(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, {}, TTLS, 0)
    assert idle.due(ALL_READY, {"short": 1}, TTLS, 50) == []
    assert idle.due(ALL_READY, {"short": 0}, TTLS, 59) == []
    assert idle.due(ALL_READY, {"short": 0}, TTLS, 60) == ["short"]


def test_a_replica_that_became_ready_without_any_request_has_its_whole_ttl(idle: IdleReplicas) -> None:
    idle.used("short", 0)
    idle.due({"short": ReplicaState.STOPPED}, {}, TTLS, 5)
    assert idle.due({"short": READY}, {}, TTLS, 50) == []
    assert idle.due({"short": READY}, {}, TTLS, 60) == ["short"]


def test_a_replica_that_is_loaded_again_at_once_has_its_whole_ttl(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, {}, TTLS, 0)
    assert idle.due(ALL_READY, {}, TTLS, 10) == ["short"]
    assert idle.due(ALL_READY, {}, TTLS, 11) == []
    assert idle.due(ALL_READY, {}, TTLS, 21) == ["short"]


def test_a_sleeping_replica_is_not_due(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, {}, TTLS, 0)
    assert idle.due({"short": ReplicaState.SLEEPING}, {}, TTLS, 50) == []


def test_a_request_may_say_for_how_long_it_wants_the_replica_kept(idle: IdleReplicas) -> None:
    idle.used("short", 0, keep_alive=30)
    idle.used("forever", 0, keep_alive=0)
    idle.used("long", 0, keep_alive=math.inf)
    assert idle.due(ALL_READY, {}, TTLS, 29) == ["forever"]
    assert idle.due(ALL_READY, {}, TTLS, 1000) == ["short"]


def test_the_next_request_brings_the_ttl_back(idle: IdleReplicas) -> None:
    idle.used("short", 0, keep_alive=math.inf)
    idle.used("forever", 0, keep_alive=5)
    idle.used("short", 20)
    idle.used("forever", 4)
    assert idle.due(ALL_READY, {}, TTLS, 29) == []
    assert idle.due(ALL_READY, {}, TTLS, 90) == ["short"]


def test_a_replica_that_stopped_starts_with_its_ttl_again(idle: IdleReplicas) -> None:
    idle.used("short", 0, keep_alive=1000)
    idle.due({**ALL_READY, "short": ReplicaState.STOPPED}, {}, TTLS, 1)
    idle.due(ALL_READY, {}, TTLS, 2)
    assert idle.due(ALL_READY, {}, TTLS, 12) == ["short"]
