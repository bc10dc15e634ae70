"""A load that fails for lack of memory: once more, with whatever can be stopped out of the way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginehouse import Swapper
from enginehouse.errors import LoadFailed, NotEnoughMemory, PluginFailed
from enginehouse.tickets import HostedReplica
from tests.support.fifo_host import fifo_host

TOO_LITTLE = NotEnoughMemory("out of memory")


def test_it_is_loaded_again_with_everything_else_stopped() -> None:
    here = fifo_host(rule={}, ready="bc")
    first, second = here.request("a"), here.request("a")
    here.swap_done("a", TOO_LITTLE)
    third = here.request("a")
    here.swap_done("a")

    assert here.log[:2] == ["swap a", "swap a -b -c"]
    assert here.granted == [first, second, third]
    assert not here.refused


def test_the_second_failure_is_the_answer() -> None:
    here = fifo_host(rule={}, ready="b")
    ticket = here.request("a")
    here.swap_done("a", TOO_LITTLE)
    again = NotEnoughMemory("still out of memory")
    here.swap_done("a", again)

    assert here.refused == {ticket: again}
    assert here.log == ["swap a", "swap a -b", f"refuse {ticket.id}"]


def test_what_was_loaded_meanwhile_is_no_reason_for_a_third_time() -> None:
    here = fifo_host(rule={}, ready="b")
    ticket = here.request("a")
    here.swap_done("a", TOO_LITTLE)
    here.request("c")
    here.swap_done("c")
    here.swap_done("a", TOO_LITTLE)

    assert here.refused == {ticket: TOO_LITTLE}


def test_the_next_request_begins_like_the_first() -> None:
    here = fifo_host(rule={}, ready="b")
    here.request("a")
    here.swap_done("a", TOO_LITTLE)
    here.swap_done("a", TOO_LITTLE)
    here.request("b")
    here.swap_done("b")
    here.request("a")

    assert here.log[-1] == "swap a", "nothing is stopped before it is known to be in the way"


@pytest.mark.parametrize(
    ("ready", "error"), [("b", LoadFailed("no such file")), ("", TOO_LITTLE)], ids=["another failure", "alone"]
)
def test_a_load_that_more_memory_would_not_help_fails_at_once(ready: str, error: Exception) -> None:
    here = fifo_host(rule={}, ready=ready)
    ticket = here.request("a")
    here.swap_done("a", error)

    assert here.refused == {ticket: error}
    assert len(here.log) == 2


def test_what_is_pinned_and_replicas_of_the_same_model_stay() -> None:
    replicas = [
        HostedReplica(replica="a", model="a"),
        HostedReplica(replica="a-2", model="a"),
        HostedReplica(replica="b", model="b", pin=True),
        HostedReplica(replica="c", model="c"),
    ]
    here = fifo_host(replicas, rule={}, ready=["a-2", "b", "c"])
    here.request("a")
    here.swap_done("a", TOO_LITTLE)
    assert here.log[-1] == "swap a -c"

    alone = fifo_host(replicas, rule={}, ready=["a-2", "b"])
    ticket = alone.request("a")
    alone.swap_done("a", TOO_LITTLE)
    assert alone.refused == {ticket: TOO_LITTLE}


def test_it_waits_for_what_is_serving() -> None:
    here = fifo_host(rule={}, ready="bc")
    here.request("b")
    ticket = here.request("a")
    here.swap_done("a", TOO_LITTLE)
    assert here.waiting == [ticket]
    assert here.log[-1] == "swap a"

    here.serve_done("b")
    assert here.log[-1] == "swap a -c -b"


def test_it_waits_for_other_loads_and_then_for_who_wanted_these() -> None:
    here = fifo_host(rule={})
    here.request("a")
    other = here.request("b")
    here.swap_done("a", TOO_LITTLE)
    here.swap_done("b")
    assert (here.granted, here.swaps) == ([other], {})

    here.serve_done("b")
    assert here.log[-1] == "swap a -b"


def test_two_that_do_not_fit_together_take_turns() -> None:
    here = fifo_host(rule={}, ready="c")
    first, second = here.request("a"), here.request("b")
    here.swap_done("a", TOO_LITTLE)
    here.swap_done("b", TOO_LITTLE)
    here.settle()

    assert set(here.granted) == {first, second}
    assert here.log == ["swap a", "swap b", "swap a -c", "grant a-1", "swap b -a", "grant b-2"]


def test_residency_counts_here_too() -> None:
    here = fifo_host(rule={}, min_residency=10.0)
    here.request("b")
    here.swap_done("b")
    here.serve_done("b")
    here.request("a")
    here.swap_done("a", TOO_LITTLE)
    assert here.log[-1] == "swap a"

    here.pass_time(10.0)
    assert here.log[-1] == "swap a -b"


def test_newer_requests_to_what_has_to_go_cannot_starve_it() -> None:
    here = fifo_host(rule={}, ready="b", max_wait=5.0)
    here.request("b")
    here.request("a")
    here.swap_done("a", TOO_LITTLE)
    here.pass_time(5.0)
    held = here.request("b")
    assert held in here.waiting

    here.serve_done("b")
    assert here.log[-1] == "swap a -b"


def test_no_newer_load_that_would_have_to_go_as_well_starts_before_it() -> None:
    here = fifo_host(rule={}, ready="b", max_wait=5.0)
    here.request("b")
    here.request("a")
    here.swap_done("a", TOO_LITTLE)
    here.pass_time(5.0)
    here.request("c")
    assert here.log[-1] == "swap a"

    here.serve_done("b")
    assert here.log[-1] == "swap a -b"


def test_when_the_last_who_waited_leaves_nothing_is_stopped() -> None:
    here = fifo_host(rule={}, ready="b")
    here.request("b")
    ticket = here.request("a")
    here.swap_done("a", TOO_LITTLE)
    here.cancel(ticket)
    here.serve_done("b")
    assert here.log[-1] == "swap a"

    here.request("a")
    assert here.log[-1] == "swap a", "who comes later starts over"


class Picky(Swapper):
    def __init__(self, *dispensable: str) -> None:
        self.names = dispensable

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return []

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        if not self.names:
            raise ZeroDivisionError
        return [each for each in running if each in self.names]


def test_the_swapper_may_know_what_must_stay() -> None:
    here = fifo_host(swapper=Picky("c"), ready="bc")
    here.request("a")
    here.swap_done("a", TOO_LITTLE)

    assert here.log[-1] == "swap a -c"


def test_a_swapper_that_fails_is_to_blame() -> None:
    here = fifo_host(swapper=Picky(), ready="bc")
    ticket = here.request("a")
    here.swap_done("a", TOO_LITTLE)

    assert isinstance(here.refused[ticket], PluginFailed)
