"""The decision tree, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginehouse import ReplicaState
from enginehouse.errors import LoadFailed, ModelNotFound, PluginFailed
from enginehouse.tickets import HostedReplica, Phase
from enginehouse_kit.testing import OneAtATime
from tests.support.fifo_host import fifo_host, waiting_tickets


def test_a_request_for_a_ready_replica_is_granted_at_once() -> None:
    here = fifo_host(ready="a")
    ticket = here.request("a")

    assert here.granted == [ticket]
    assert here.log == ["grant a-1"]


def test_a_request_for_an_unknown_replica_is_refused() -> None:
    here = fifo_host()
    ticket = here.request("ghost")

    assert isinstance(here.refused[ticket], ModelNotFound)
    assert not here.swaps


def test_a_request_for_a_cold_replica_starts_a_swap_and_is_granted_when_that_is_done() -> None:
    here = fifo_host()
    ticket = here.request("a")
    assert here.log == ["swap a"]

    here.swap_done("a")
    assert here.granted == [ticket]


@pytest.mark.parametrize("state", [ReplicaState.SLEEPING, ReplicaState.FAILED, ReplicaState.STARTING])
def test_whatever_is_not_ready_is_brought_there_by_a_swap(state: ReplicaState) -> None:
    here = fifo_host()
    here.states["a"] = state
    here.request("a")

    assert here.log == ["swap a"]


def test_what_stops_on_its_own_is_started_again_when_it_has_stopped() -> None:
    here = fifo_host()
    here.states["a"] = ReplicaState.STOPPING
    here.request("a")
    assert here.log == []

    here.states["a"] = ReplicaState.STOPPED
    here.scheduler.on_stopped("a")
    assert here.log == ["swap a"]


def test_requests_for_what_is_being_loaded_join_that_load() -> None:
    here = fifo_host()
    tickets = [here.request("a") for _ in range(3)]
    assert here.log == ["swap a"]

    here.swap_done("a")
    assert here.granted == tickets


def test_a_failed_load_fails_all_who_joined_it_and_nobody_else() -> None:
    here = fifo_host(rule={})
    error = LoadFailed("no memory")
    tickets, other = [here.request("a"), here.request("a")], here.request("b")
    here.swap_done("a", error)

    assert here.refused == dict.fromkeys(tickets, error)
    assert here.waiting == [other]


def test_after_a_failed_load_the_next_request_tries_again() -> None:
    here = fifo_host()
    here.request("a")
    here.swap_done("a", LoadFailed("no memory"))
    here.request("a")

    assert here.log == ["swap a", "refuse a-1", "swap a"]


def test_swaps_that_touch_nothing_in_common_run_side_by_side() -> None:
    here = fifo_host(rule={})
    here.request("a")
    here.request("b")

    assert here.log == ["swap a", "swap b"]


def test_a_swap_that_would_evict_what_is_being_loaded_waits() -> None:
    here = fifo_host(rule={"b": "a"})
    here.request("a")
    here.request("b")
    here.swap_done("a")
    assert here.log == ["swap a", "grant a-1"]

    here.serve_done("a")
    assert here.log[2:] == ["swap b -a"]


def test_a_swap_of_what_another_evicts_waits() -> None:
    here = fifo_host(rule={"b": "a"}, ready="a")
    here.request("b")
    here.request("a")
    assert here.log == ["swap b -a"]

    here.swap_done("b")
    assert here.log[1:] == ["grant b-1", "swap a"]


def test_two_swaps_that_evict_the_same_do_not_run_at_once() -> None:
    here = fifo_host(rule={"a": "c", "b": "c"}, ready="c")
    here.request("a")
    here.request("b")
    assert here.log == ["swap a -c"]

    here.swap_done("a")
    assert here.log[1:] == ["grant a-1", "swap b"]


def test_what_is_being_evicted_is_not_granted_any_more() -> None:
    here = fifo_host(ready="a")
    here.request("b")
    ticket = here.request("a")

    assert here.waiting[-1] is ticket


def test_streams_of_a_busy_replica_are_to_leave_it_while_a_swap_waits() -> None:
    here = fifo_host(ready="a")
    here.request("a")
    assert not here.vacated
    here.request("b")
    assert here.vacated == {"a"}

    here.vacated.clear()
    here.pass_time(1.0)
    assert here.vacated == {"a"}


def test_a_busy_replica_is_not_evicted_before_its_last_request_has_ended() -> None:
    here = fifo_host(ready="a")
    here.request("a")
    here.request("a")
    here.request("b")
    here.serve_done("a")
    assert not here.swaps

    here.serve_done("a")
    assert here.log[-1] == "swap b -a"


def test_a_grant_that_nobody_took_is_not_counted() -> None:
    here = fifo_host()
    gone = here.request("a")
    here.disconnect(gone)
    here.swap_done("a")
    here.request("b")

    assert here.log == ["swap a", "grant a-1", "swap b -a"]


def test_an_end_too_many_is_not_counted_either() -> None:
    here = fifo_host(ready="a")
    here.scheduler.on_serve_done("a")
    here.request("a")
    here.request("b")

    assert not here.swaps


def test_the_queue_collates_requests_for_the_same_model() -> None:
    here = fifo_host()
    for replica in "abcabc":
        here.request(replica)
    for replica in "abc":
        here.swap_done(replica)
        here.serve_done(replica)
        here.serve_done(replica)

    assert [line for line in here.log if line.startswith("swap")] == ["swap a", "swap b -a", "swap c -b"]
    assert [ticket.id for ticket in here.granted] == ["a-1", "a-4", "b-2", "b-5", "c-3", "c-6"]


def test_the_end_of_one_swap_may_start_several() -> None:
    here = fifo_host(rule={"a": "bc"}, ready="bc")
    here.request("a")
    here.request("b")
    here.request("c")
    here.swap_done("a")

    assert here.log == ["swap a -b -c", "grant a-1", "swap b", "swap c"]


def test_a_blocked_head_does_not_block_who_comes_later() -> None:
    here = fifo_host(rule={"b": "a"}, ready="a")
    here.request("a")
    here.request("b")
    here.request("c")

    assert here.log == ["grant a-1", "swap c"]


def test_higher_priorities_go_first_and_equal_ones_as_they_came() -> None:
    replicas = [HostedReplica(replica=each, model=each, priority=9 if each == "d" else 0) for each in "abcd"]
    here = fifo_host(replicas, ready="a")
    here.request("a")
    low, second, first, third, model = (
        here.request("b", -1),
        here.request("c"),
        here.request("b", 5),
        here.request("c"),
        here.request("d"),
    )

    assert waiting_tickets(here) == [model, first, second, third, low]
    here.serve_done("a")
    assert here.log[-1] == "swap d -a"


def test_nobody_overtakes_those_who_wait_for_the_same() -> None:
    here = fifo_host(ready="a")
    here.request("a")
    first = here.request("b")
    here.states["b"] = ReplicaState.READY
    second = here.request("b")

    assert here.granted[1:] == [first, second]


def test_positions_and_phases_are_shown_loading_first() -> None:
    here = fifo_host()
    here.request("a")
    here.request("b", 1)
    here.request("a")

    assert [(each.ticket.id, each.phase, each.position) for each in here.scheduler.waiting()] == [
        ("a-1", Phase.LOADING, 0),
        ("a-3", Phase.LOADING, 1),
        ("b-2", Phase.QUEUED, 2),
    ]


class Recorder(OneAtATime):
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.started: list[tuple[str, list[str]]] = []

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        self.asked.append(list(running))
        return ()

    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        self.started.append((target, list(running)))


def test_the_swapper_sees_what_is_being_loaded_and_the_least_recently_used_first() -> None:
    recorder = Recorder()
    here = fifo_host(ready="abd", swapper=recorder)
    here.request("b")
    here.request("a")
    here.request("c")
    assert recorder.asked[-1] == ["d", "b", "a"]

    here.serve_done("b")
    here.request("b")
    here.swap_done("c")
    here.unload("d")
    here.stop_done("d")
    here.request("d")
    assert recorder.asked[-1] == ["a", "b", "c"]


def test_what_is_being_loaded_counts_as_used_just_now() -> None:
    recorder = Recorder()
    here = fifo_host(ready="a", swapper=recorder)
    here.request("a")
    here.request("b")
    here.request("c")

    assert recorder.asked[-1] == ["a", "b"]


def test_the_swapper_is_told_once_of_every_swap_that_starts() -> None:
    recorder = Recorder()
    here = fifo_host(ready="a", swapper=recorder)
    here.request("b")
    here.request("c")
    here.request("b")
    here.swap_done("c")

    assert recorder.started == [("b", ["a"]), ("c", ["a", "b"])]


def test_what_can_never_run_is_refused_with_the_swappers_reason() -> None:
    here = fifo_host(rule={"b": None}, ready="a")
    ticket = here.request("b")

    assert str(here.refused[ticket]) == "'b' is too large"


class Broken(OneAtATime):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        if target == "b":
            raise KeyError("b")
        return ()

    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        if target == "c":
            raise ValueError("no")


@pytest.mark.parametrize("replica", ["b", "c"])
def test_a_swapper_that_raises_fails_the_request_and_nothing_else(replica: str) -> None:
    here = fifo_host(swapper=Broken())
    ticket, other = here.request(replica), here.request("a")

    assert isinstance(here.refused[ticket], PluginFailed)
    assert "The swapper 'Broken' of plugin 'tests' failed with" in str(here.refused[ticket])
    here.settle()
    assert here.granted == [other]
