"""The starvation guard: what ``max_wait`` promises, and what it must not do."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import ReplicaState
from enginehouse.errors import LoadFailed
from enginehouse.tickets import HostedReplica
from enginehouse_kit.testing import OneAtATime
from tests.support.fifo_host import fifo_host, waiting_tickets


def test_newer_requests_to_what_blocks_who_waited_too_long_queue_behind_it() -> None:
    here = fifo_host(ready="a", max_wait=60.0)
    here.request("a")
    here.request("b")
    here.time = 59.0
    assert here.request("a") in here.granted

    here.time = 60.0
    held = here.request("a")
    here.serve_done("a")
    here.serve_done("a")
    assert here.log[-1] == "swap b -a"
    here.swap_done("b")
    here.serve_done("b")
    here.swap_done("a")
    assert here.granted[-1] is held


def test_a_steady_stream_cannot_starve_another_model() -> None:
    here = fifo_host(ready="a", max_wait=5.0)
    here.request("a")
    starving = here.request("b")
    for _ in range(5):
        here.pass_time(1.0)
        here.request("a")
        here.serve_done("a")

    assert not here.in_flight["a"]
    here.swap_done("b")
    assert here.granted[-1] is starving


def test_an_orchestrator_its_explorers_and_a_coder_all_get_on() -> None:
    """A B A A C in order of arrival: requests for the loaded model go first, and each of the others has its turn."""
    here = fifo_host(ready="a", max_wait=60.0)
    here.request("a")
    here.request("b")
    here.request("a")
    here.request("a")
    here.request("c")
    assert here.log == ["grant a-1", "grant a-3", "grant a-4"]

    for _ in range(3):
        here.serve_done("a")
    here.swap_done("b")
    here.serve_done("b")
    here.swap_done("c")
    assert here.log[3:] == ["swap b -a", "grant b-2", "swap c -b", "grant c-5"], "two swaps, not four"


def test_without_max_wait_nobody_is_held_back() -> None:
    here = fifo_host(ready="a", max_wait=0.0)
    here.request("a")
    here.request("b")
    here.pass_time(10_000.0)

    assert here.request("a") in here.granted


def test_priority_does_not_get_past_who_waited_too_long() -> None:
    here = fifo_host(ready="a", max_wait=5.0)
    here.request("a")
    here.request("b", -10)
    here.pass_time(5.0)
    here.request("a", 100)
    here.request("c", 100)
    here.serve_done("a")

    assert here.log == ["grant a-1", "swap b -a"]


def test_requests_to_what_is_not_in_the_way_go_on() -> None:
    here = fifo_host(rule={"b": "a"}, ready="ac", max_wait=5.0)
    here.request("a")
    here.request("b")
    here.pass_time(5.0)

    assert here.request("c") in here.granted


def test_nobody_is_held_back_while_something_else_is_in_the_way() -> None:
    """Not behind a load, an unload, or a residency: they would wait in vain."""
    here = fifo_host(rule={"b": "ac"}, ready="a", max_wait=5.0)
    here.request("a")
    here.request("c")
    here.request("b")
    here.pass_time(5.0)
    assert here.request("a") in here.granted

    here.swap_done("c")
    assert here.request("a") in here.waiting


def test_an_unload_that_hangs_lets_nobody_be_held_back() -> None:
    here = fifo_host(rule={"b": "ac"}, ready="ac", max_wait=5.0)
    here.unload("c")
    here.request("a")
    here.request("b")
    here.pass_time(5.0)
    assert here.request("a") in here.granted

    here.stop_done("c")
    assert here.request("a") in here.waiting


def test_a_residency_is_kept_and_traffic_goes_on_meanwhile() -> None:
    here = fifo_host(max_wait=5.0, min_residency=20.0)
    here.request("a")
    here.swap_done("a")
    here.request("b")
    here.pass_time(19.0)
    assert here.request("a") in here.granted

    here.pass_time(1.0)
    assert here.request("a") in here.waiting


def test_newer_loads_that_would_be_in_the_way_wait_too() -> None:
    """c could be loaded beside a, but b would have to evict it as well."""
    here = fifo_host(rule={"b": "ac", "c": "b"}, ready="a", max_wait=5.0)
    here.request("a")
    here.request("b")
    here.pass_time(5.0)
    here.request("c", 100)
    here.request("d")
    here.serve_done("a")

    assert here.log == ["grant a-1", "swap d", "swap b -a"]


def test_what_sleeps_is_not_woken_when_it_has_to_go() -> None:
    here = fifo_host(rule={"b": "ac"}, ready="a", max_wait=5.0)
    here.states["c"] = ReplicaState.SLEEPING
    here.request("a")
    here.request("b")
    here.pass_time(5.0)
    here.request("c")
    here.serve_done("a")

    assert here.log == ["grant a-1", "swap b -c -a"]


def test_who_joined_a_load_gets_what_it_waited_for() -> None:
    """A load in vain would help nobody: b comes next, before anything newer."""
    here = fifo_host(max_wait=5.0)
    here.request("a")
    here.request("b")
    joined = here.request("a")
    here.pass_time(10.0)
    here.swap_done("a")
    assert joined in here.granted

    assert here.request("a") in here.waiting
    here.serve_done("a")
    here.serve_done("a")
    assert here.log[-1] == "swap b -a"


def test_who_waited_too_long_for_room_goes_before_higher_priorities() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", concurrency=1)], ready="a", max_wait=5.0)
    here.request("a")
    old = here.request("a")
    here.pass_time(5.0)
    high = here.request("a", 9)
    assert waiting_tickets(here) == [old, high]

    here.serve_done("a")
    assert here.granted[-1] is old


def test_older_requests_to_what_is_in_the_way_are_still_served() -> None:
    here = fifo_host([HostedReplica(replica="a", model="a", concurrency=1), "b"], ready="a", max_wait=5.0)
    here.request("a")
    older = here.request("a")
    here.request("b")
    newer = here.request("a", 100)
    here.pass_time(5.0)
    here.serve_done("a")
    assert here.granted[-1] is older

    here.serve_done("a")
    assert here.log[-1] == "swap b -a"
    assert newer in here.waiting


def test_when_who_waited_too_long_leaves_the_others_go_on() -> None:
    here = fifo_host(ready="a", max_wait=5.0)
    here.request("a")
    starving = here.request("b")
    here.pass_time(5.0)
    held = here.request("a")
    here.cancel(starving)

    assert held in here.granted


def test_who_can_never_be_loaded_holds_nobody_back() -> None:
    rule: dict[str, str | None] = {"b": "a"}
    here = fifo_host(rule=rule, ready="a", max_wait=5.0)
    here.request("a")
    hopeless = here.request("b")
    here.pass_time(5.0)
    rule["b"] = None

    assert here.request("a") in here.granted
    here.pass_time(1.0)
    assert isinstance(here.refused[hopeless], LoadFailed)


def test_the_one_who_waited_longest_goes_first() -> None:
    here = fifo_host(ready="a", max_wait=5.0)
    here.request("a")
    here.request("b")
    here.time = 1.0
    here.request("c", 100)
    here.pass_time(6.0)
    here.serve_done("a")
    here.swap_done("b")
    here.serve_done("b")

    assert [line for line in here.log if line.startswith("swap")] == ["swap b -a", "swap c -b"]


def test_a_host_that_loads_all_it_may_does_not_ask_for_evictions() -> None:
    asked: list[str] = []

    class Watched(OneAtATime):
        def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
            asked.append(target)
            return super().eviction_for(target, running)

    here = fifo_host(swapper=Watched(), max_loads=1, max_wait=60.0)
    for replica in "abcd":
        here.request(replica)
    here.time = 60.0
    asked.clear()
    here.scheduler.on_tick(here.time)
    assert asked == []
