"""A configuration that changes while requests wait: nothing is lost, and what is new counts at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enginehouse import ReplicaState, Swapper
from enginehouse.errors import NotEnoughMemory
from enginehouse.tickets import HostedReplica
from tests.support.fifo_host import fifo_host, waiting_tickets


class Side(Swapper):
    """Everything may run side by side."""

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return []


FREE: Mapping[str, Any] = {"max_loads": 0, "max_wait": 0.0, "queue_timeout": 0.0}


def test_who_waits_keeps_waiting_in_the_same_order() -> None:
    home = fifo_host(ready=["a"])
    served = home.request("a")
    tickets = [home.request(replica) for replica in "bcbd"]
    before = waiting_tickets(home)
    home.reconfigure("abcd", **FREE)
    assert waiting_tickets(home) == before
    assert home.granted == [served]
    home.settle()
    assert set(home.granted) == {served, *tickets}


def test_a_new_swapper_lets_in_what_the_old_one_held_back() -> None:
    home = fifo_host(ready=["a"])
    home.request("a")
    ticket = home.request("b")
    assert not home.swaps
    home.reconfigure("abcd", swapper=Side(), **FREE)
    assert [swap.evict for swap in home.swaps.values()] == [()]
    home.swap_done("b")
    assert home.granted[-1] is ticket


def test_a_swap_in_flight_goes_on_and_is_counted() -> None:
    home = fifo_host(max_loads=1)
    first, second = home.request("a"), home.request("b")
    home.reconfigure("abcd", swapper=Side(), **{**FREE, "max_loads": 1})
    assert [swap.target for swap in home.swaps.values()] == ["a"]
    home.swap_done("a")
    assert home.granted == [first]
    home.swap_done("b")
    assert home.granted == [first, second]


def test_more_loads_begin_at_once_when_they_may() -> None:
    home = fifo_host(swapper=Side(), max_loads=1)
    home.request("a")
    home.request("b")
    home.reconfigure("abcd", swapper=Side(), **{**FREE, "max_loads": 2})
    assert [swap.target for swap in home.swaps.values()] == ["a", "b"]


def test_what_is_served_is_still_in_flight_for_the_new_rules() -> None:
    home = fifo_host(swapper=Side(), ready=["a"])
    home.request("a")
    home.reconfigure("abcd", **FREE)
    ticket = home.request("b")
    assert not home.swaps, "a is busy, and must go"
    home.serve_done("a")
    home.swap_done("b")
    assert home.granted[-1] is ticket


def test_new_priorities_count_for_who_waits() -> None:
    home = fifo_host(ready=["a"])
    home.request("a")
    b, c = home.request("b"), home.request("c")
    assert waiting_tickets(home) == [b, c]
    home.reconfigure(["a", "b", HostedReplica(replica="c", model="c", priority=9), "d"], **FREE)
    assert waiting_tickets(home) == [c, b]
    home.reconfigure("abcd", **FREE)
    assert waiting_tickets(home) == [b, c]


def test_a_lower_concurrency_cuts_nobody_off_and_a_higher_one_lets_in_who_waits() -> None:
    def replicas(concurrency: int) -> list[Any]:
        return [HostedReplica(replica="a", model="a", concurrency=concurrency), "b"]

    home = fifo_host(replicas(2), ready=["a"])
    home.request("a"), home.request("a")
    home.reconfigure(replicas(1), **FREE)
    third = home.request("a")
    home.serve_done("a")
    assert third not in home.granted
    home.reconfigure(replicas(2), **FREE)
    assert third in home.granted


def test_a_shorter_queue_refuses_nobody_who_waits() -> None:
    home = fifo_host(ready=["a"])
    home.request("a")
    tickets = [home.request("b") for _ in range(3)]
    home.reconfigure("abcd", **{**FREE, "max_queue": 1})
    assert not home.refused
    assert home.request("b") in home.refused
    home.settle()
    assert set(tickets) <= set(home.granted)


def test_a_shorter_queue_timeout_counts_from_the_arrival() -> None:
    home = fifo_host(ready=["a"])
    home.request("a")
    ticket = home.request("b")
    home.pass_time(10)
    home.reconfigure("abcd", **{**FREE, "queue_timeout": 5.0})
    home.pass_time(0)
    assert ticket in home.refused


def test_a_new_replica_is_loaded_when_it_is_asked_for() -> None:
    home = fifo_host("ab")
    home.reconfigure("abe", swapper=Side(), **FREE)
    ticket = home.request("e")
    home.swap_done("e")
    assert home.granted == [ticket]


def test_what_is_on_its_way_out_may_be_pushed_out_once_it_is_idle() -> None:
    home = fifo_host(ready=["a"])
    home.request("a")
    home.states["a"] = ReplicaState.STOPPING
    ticket, late = home.request("b"), home.request("a")
    assert not home.swaps
    home.serve_done("a")
    assert [(swap.target, swap.evict) for swap in home.swaps.values()] == [("b", ("a",))]
    home.swap_done("b")
    assert home.granted[1:] == [ticket]
    assert late in home.waiting


def test_a_load_that_lacked_memory_still_gets_all_there_is() -> None:
    home = fifo_host(swapper=Side(), ready=["a"])
    home.request("a")
    ticket = home.request("b")
    home.swap_done("b", NotEnoughMemory("out of memory"))
    home.reconfigure("abcd", swapper=Side(), **FREE)
    home.serve_done("a")
    assert [swap.evict for swap in home.swaps.values()] == [("a",)]
    home.swap_done("b")
    assert home.granted[-1] is ticket
