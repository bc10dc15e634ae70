"""What ends a wait other than a grant: callers that leave, unloads, crashes, late words, the end of the gateway."""

from __future__ import annotations

import pytest

from enginehouse import ReplicaState
from enginehouse.domain.errors import ShuttingDown
from enginehouse.errors import LoadFailed, ModelNotFound, ReplicaLost
from enginehouse.tickets import HostedReplica, SwapDone, SwapId
from tests.support.fifo_host import fifo_host


def test_a_queued_request_that_was_cancelled_starts_nothing() -> None:
    here = fifo_host()
    here.request("a")
    here.cancel(here.request("b"))
    here.settle()

    assert here.log == ["swap a", "grant a-1"]


def test_the_others_that_joined_a_load_are_served_when_one_leaves() -> None:
    here = fifo_host()
    first, second = here.request("a"), here.request("a")
    here.cancel(first)
    here.swap_done("a")

    assert here.granted == [second]
    assert not here.cancelled


def test_a_load_that_nobody_waits_for_any_more_goes_on_for_whoever_comes_back() -> None:
    here = fifo_host()
    first, second = here.request("a"), here.request("a")
    here.cancel(first)
    here.cancel(second)
    here.pass_time(60)
    again = here.request("a")
    here.swap_done("a")

    assert here.log == ["swap a", f"grant {again.id}"]


@pytest.mark.parametrize("first", ["the other", "the end"])
def test_a_load_that_nobody_waits_for_any_more_makes_way_for_another(first: str) -> None:
    here = fifo_host()
    ticket = here.request("a")
    if first == "the other":
        here.request("b")
    here.cancel(ticket)
    if first == "the end":
        here.request("b")
    assert here.log == ["swap a", "cancel a"]
    here.swap_done("a", LoadFailed("cancelled"))

    assert here.log[2:] == ["swap b, evict a"] or here.log[2:] == ["swap b"]


def test_a_load_that_nobody_waits_for_any_more_gives_up_its_place_among_max_loads() -> None:
    here = fifo_host(rule={}, max_loads=2)
    here.cancel(here.request("a"))
    here.request("b")
    assert "cancel a" not in here.log
    here.request("c")

    assert here.log == ["swap a", "swap b", "cancel a", "swap c"]


def test_loads_may_be_cancelled_as_soon_as_nobody_waits() -> None:
    here = fifo_host(cancel_loads="always")
    first, second = here.request("a"), here.request("a")
    here.cancel(first)
    here.cancel(second)

    assert here.log == ["swap a", "cancel a"]


def test_loads_may_go_on_although_their_place_is_wanted() -> None:
    here = fifo_host(cancel_loads="never")
    here.cancel(here.request("a"))
    ticket = here.request("b")
    here.swap_done("a")
    here.settle()

    assert not here.cancelled
    assert here.granted == [ticket]


def test_who_wants_a_replica_whose_load_was_cancelled_has_it_loaded_anew() -> None:
    here = fifo_host(cancel_loads="always")
    here.cancel(here.request("a"))
    ticket = here.request("a")
    here.swap_done("a", LoadFailed("given up"))
    assert here.log == ["swap a", "cancel a", "swap a"]

    here.swap_done("a")
    assert here.granted == [ticket]


def test_a_cancelled_load_that_succeeds_all_the_same_is_used() -> None:
    here = fifo_host(cancel_loads="always")
    here.cancel(here.request("a"))
    ticket = here.request("a")
    here.swap_done("a")

    assert here.granted == [ticket]


def test_to_cancel_what_does_not_wait_changes_nothing() -> None:
    here = fifo_host(ready="a")
    ticket = here.request("a")
    here.cancel(ticket)
    here.request("b")

    assert here.log == ["grant a-1"]


def test_a_late_or_repeated_end_of_a_swap_is_ignored() -> None:
    here = fifo_host()
    here.request("a")
    here.swap_done("a", LoadFailed("first"))
    ticket = here.request("a")
    for _ in range(2):
        here.scheduler.on_swap_done(SwapDone(swap=SwapId(1), target="a", error=LoadFailed("late")))

    assert here.waiting == [ticket]
    here.swap_done("a")
    here.scheduler.on_swap_done(SwapDone(swap=SwapId(2), target="a"))
    assert here.granted == [ticket]


def test_an_unload_during_a_load_does_not_hurt_a_newer_request() -> None:
    here = fifo_host()
    old = here.request("a")
    here.unload("a")
    new = here.request("a")
    here.swap_done("a", LoadFailed("aborted"))
    here.stop_done("a")
    here.swap_done("a")

    assert "was unloaded" in str(here.refused[old])
    assert here.granted == [new]


def test_an_unload_refuses_who_waits_for_it_and_stops_it() -> None:
    here = fifo_host(rule={"b": "a"}, ready="a")
    here.request("a")
    queued, other = here.request("b"), here.request("c")
    here.unload("b", "a", timeout=3.0)

    assert isinstance(here.refused[queued], LoadFailed)
    assert here.log[-1] == "stop b a within 3"
    assert here.waiting == [other]


def test_an_unload_of_what_the_host_does_not_have_does_nothing() -> None:
    here = fifo_host()
    here.unload("ghost")

    assert here.log == []


def test_who_wants_what_is_being_unloaded_has_it_started_again() -> None:
    here = fifo_host(ready="a")
    here.unload("a")
    ticket = here.request("a")
    assert here.log == ["stop a within 10"]

    here.stop_done("a")
    here.swap_done("a")
    assert here.granted == [ticket]


def test_a_stop_that_hangs_freezes_nobody_else() -> None:
    here = fifo_host(rule={"c": "a"}, ready="ab", max_loads=1)
    here.unload("a")
    blocked = here.request("c")
    here.request("b")
    here.request("d")
    here.swap_done("d")

    assert here.log[1:] == ["grant b-2", "swap d", "grant d-3"]
    assert here.waiting == [blocked]
    here.stop_done("a")
    assert here.log[-1] == "swap c"


def test_a_load_that_is_cancelled_slowly_does_not_take_the_place_of_another() -> None:
    here = fifo_host(rule={}, max_loads=1)
    here.request("a")
    here.unload("a")
    here.request("b")

    assert here.log[-1] == "swap b"


def test_an_unload_of_what_is_being_loaded_lets_the_next_load_start() -> None:
    here = fifo_host(rule={}, max_loads=1)
    here.request("a")
    here.request("b")
    here.unload("a")

    assert here.log[-1] == "swap b"


def test_requests_in_flight_of_an_unloaded_replica_are_settled_when_they_end() -> None:
    here = fifo_host(ready="a")
    here.request("a")
    here.unload("a")
    here.stop_done("a")
    here.request("a")
    here.swap_done("a")
    here.request("b")
    here.serve_done("a")
    assert not here.swaps

    here.serve_done("a")
    assert here.log[-1] == "swap b -a"


def test_requests_waiting_for_room_at_a_replica_that_exited_go_back_to_routing() -> None:
    here = fifo_host(
        [HostedReplica(replica="a", model="a", concurrency=1), HostedReplica(replica="b", model="b")], ready="a"
    )
    here.request("a")
    first, other, second = here.request("a"), here.request("b"), here.request("a")
    here.crash("a")

    assert list(here.refused) == [first, second]
    assert {type(error) for error in here.refused.values()} == {ReplicaLost}
    assert here.waiting == [other]
    assert here.log.count("swap a") == 0, "nobody waits for it here any more"


def test_a_request_that_returns_has_its_replica_loaded_again() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", concurrency=1)], ready="a")
    here.request("a")
    here.request("a")
    here.crash("a")
    again = here.request("a")
    assert here.log[-1] == "swap a"

    here.serve_done("a")
    here.swap_done("a")
    assert here.granted[-1] is again


def test_a_replica_that_exits_while_it_loads_fails_with_its_load() -> None:
    here = fifo_host()
    error = LoadFailed("it exited as soon as it was ready")
    ticket = here.request("a")
    here.crash("a")
    assert here.waiting == [ticket]

    here.swap_done("a", error)
    assert here.refused == {ticket: error}


def test_the_place_of_a_replica_that_exited_can_be_taken() -> None:
    here = fifo_host(rule={"b": "a"}, ready="a", min_residency=5.0)
    here.request("a")
    here.request("b")
    here.crash("a")

    assert here.log[-1] == "swap b"


def test_who_waits_for_what_the_host_has_no_more_goes_back_to_routing() -> None:
    here = fifo_host(ready="a")
    here.request("a")
    ticket = here.request("b")
    del here.states["b"]
    here.serve_done("a")

    assert isinstance(here.refused[ticket], ReplicaLost)
    assert isinstance(here.refused[here.request("b")], ModelNotFound), "who comes now was sent to the wrong host"


def test_the_load_of_a_removed_replica_is_cancelled() -> None:
    here = fifo_host(rule={})
    ticket = here.request("a")
    del here.states["a"]
    here.request("b")
    here.swap_done("b")

    assert isinstance(here.refused[ticket], ReplicaLost)
    assert "cancel a" in here.log


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_end_of_the_gateway_refuses_everything(when: str) -> None:
    here = fifo_host()
    error = ShuttingDown("bye")
    before = [here.request(replica) for replica in "aabbc"] if when == "before" else []
    here.shutdown(error)
    after = [] if before else [here.request("a")]

    assert here.refused == dict.fromkeys([*before, *after], error)
    assert here.log.count("swap a") == len(before[:1])


def test_who_comes_back_to_what_an_unwanted_load_evicts_cancels_that_load() -> None:
    here = fifo_host(ready="a")
    here.cancel(here.request("b"))
    ticket = here.request("a")
    assert here.log == ["swap b -a", "cancel b"]
    here.swap_done("b", LoadFailed("cancelled"))
    here.swap_done("a")

    assert here.granted == [ticket]


def test_a_load_that_others_wait_for_is_not_cancelled_by_what_it_evicts() -> None:
    here = fifo_host(ready="a")
    here.request("b")
    here.request("a")
    assert here.log == ["swap b -a"]


@pytest.mark.parametrize("wanted", ["a", "c"])
@pytest.mark.parametrize("cancel_loads", ["wanted", "never"])
def test_a_load_without_a_place_gives_way_and_waits_on(wanted: str, cancel_loads: str) -> None:
    here = fifo_host(ready="a", cancel_loads=cancel_loads, max_wait=60)
    first = here.request("b")
    here.states["b"] = ReplicaState.PLACING
    ticket = here.request(wanted)
    assert here.log == ["swap b -a", "cancel b"]
    swap, *_ = here.swaps
    here.swaps.pop(swap)
    here.states["b"] = ReplicaState.STOPPED
    here.scheduler.on_swap_done(SwapDone(swap=swap, target="b", error=LoadFailed("cancelled")))
    if wanted == "c":
        here.swap_done("c")
    assert here.granted == [ticket]
    here.pass_time(59)
    again = here.request(wanted)
    assert here.granted == [ticket, again]
    here.pass_time(2)
    here.request(wanted)
    assert here.granted == [ticket, again], "another try of the one that has waited for too long comes first"
    assert here.waiting[0] is first
    here.settle()
    assert first in here.granted
