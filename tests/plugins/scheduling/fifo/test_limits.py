"""Limits: of the queue, of loads, of requests at once, of residency, and of what may be evicted."""

from __future__ import annotations

from enginehouse.errors import LoadFailed, QueueFull, QueueTimeout
from enginehouse.tickets import HostedReplica
from tests.support.fifo_host import fifo_host, waiting_tickets


def test_a_full_queue_refuses_and_says_when_to_try_again() -> None:
    here = fifo_host(max_queue=2)
    here.request("a")
    here.request("b")
    ticket = here.request("b")

    error = here.refused[ticket]
    assert isinstance(error, QueueFull)
    assert error.retry_after == 1


def test_a_full_queue_is_no_matter_for_what_is_ready() -> None:
    here = fifo_host(rule={}, max_queue=1, ready="a")
    here.request("b")

    assert here.request("a") in here.granted


def test_who_left_makes_room_in_the_queue() -> None:
    here = fifo_host(max_queue=2)
    here.request("a")
    here.cancel(here.request("b"))

    assert here.request("b") in here.waiting


def test_without_a_limit_any_number_may_wait() -> None:
    here = fifo_host(max_queue=0)

    assert len([here.request("a") for _ in range(1100)]) == len(here.waiting)


def test_who_waited_too_long_is_refused_queued_or_loading() -> None:
    here = fifo_host(queue_timeout=10.0)
    loading, queued = here.request("a"), here.request("b")
    here.pass_time(9.9)
    later = here.request("b")
    assert not here.refused
    here.pass_time(0.1)

    assert set(here.refused) == {loading, queued}
    assert all(isinstance(error, QueueTimeout) for error in here.refused.values())
    assert here.waiting == [later]
    assert here.cancelled == [1]


def test_only_so_many_loads_run_at_once() -> None:
    here = fifo_host(rule={}, max_loads=2)
    for replica in "abcd":
        here.request(replica)
    assert here.log == ["swap a", "swap b"]

    here.swap_done("b")
    assert here.log[2:] == ["grant b-2", "swap c"]


def test_what_can_never_run_is_refused_even_while_others_load() -> None:
    here = fifo_host(rule={"b": None}, max_loads=1)
    here.request("a")

    assert here.request("b") in here.refused


def test_no_more_requests_at_once_than_a_replica_takes() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", concurrency=2)], ready="a")
    tickets = [here.request("a") for _ in range(4)]
    assert here.granted == tickets[:2]

    here.serve_done("a")
    assert here.granted == tickets[:3]


def test_a_load_is_followed_by_as_many_grants_as_there_is_room_for() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", concurrency=1)])
    late, first, second = here.request("a", -1), here.request("a"), here.request("a")
    here.swap_done("a")

    assert here.granted == [first]
    assert waiting_tickets(here) == [second, late]


def test_a_grant_that_nobody_took_leaves_its_room_to_the_next() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", concurrency=1)])
    gone, second = here.request("a"), here.request("a")
    here.disconnect(gone)
    here.swap_done("a")

    assert here.granted == [second]


def test_those_who_wait_for_room_are_served_before_their_model_is_evicted() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", concurrency=1), "b"], ready="a")
    here.request("a")
    here.request("b")
    here.request("a")
    here.serve_done("a")
    assert here.log == ["grant a-1", "grant a-3"]

    here.serve_done("a")
    assert here.log[-1] == "swap b -a"


def test_a_replica_is_not_evicted_sooner_than_its_residency() -> None:
    here = fifo_host(min_residency=10.0)
    here.request("a")
    here.swap_done("a")
    here.serve_done("a")
    here.request("b")
    here.pass_time(9.5)
    assert not here.swaps

    here.pass_time(0.5)
    assert here.log[-1] == "swap b -a"


def test_what_was_there_from_the_start_has_no_residency() -> None:
    here = fifo_host(ready="a", min_residency=10.0)
    here.request("b")

    assert here.log == ["swap b -a"]


def test_a_pinned_replica_is_never_evicted_and_the_refusal_names_it() -> None:
    here = fifo_host([HostedReplica(replica="a@gpu", model="llama", pin=True), "b"], ready=["a@gpu"])
    ticket = here.request("b")

    error = here.refused[ticket]
    assert isinstance(error, LoadFailed)
    assert str(error) == "Model 'b' cannot be loaded: it needs 'llama' evicted, which is pinned"


def test_a_pinned_replica_that_does_not_run_is_in_nobodys_way() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", pin=True), "b"])
    here.request("b")

    assert here.log == ["swap b"]
