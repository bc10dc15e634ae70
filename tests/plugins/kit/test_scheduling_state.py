"""The kit for authors of schedulers."""

from __future__ import annotations

import msgspec
import pytest

from enginehouse import ReplicaState, Swapper
from enginehouse.errors import LoadFailed
from enginehouse.tickets import HostedReplica, HostFacts, SchedulingLimits, SwapId, Ticket, TicketQueue, WaitingTicket
from enginehouse_kit.schedulers import (
    ReplicaUsage,
    SchedulingState,
    StarvationClaims,
    SwapInFlight,
    SwapObstacle,
    SwapsInFlight,
)
from enginehouse_kit.testing import FakeEffects, OneAtATime
from enginehouse_scheduling.fifo import Fifo
from tests.support.fifo_host import ByRule

NEVER = float("-inf")


def put(queue: TicketQueue, replica: str, priority: int = 0, arrived: float = 0.0) -> WaitingTicket:
    ticket = Ticket(id=f"{replica}-{len(queue)}", replica=replica, arrived=arrived)
    waiting = queue.place(ticket, priority)
    queue.add(waiting)
    return waiting


def state(
    rule: Swapper | None = None, *, ready: str = "", concurrency: int = 0, **limits: float
) -> tuple[SchedulingState, FakeEffects]:
    hosted = [HostedReplica(replica=each, model=each, concurrency=concurrency) for each in "abc"]
    effects = FakeEffects(Fifo(), hosted, ready=ready)
    settings = SchedulingLimits(**{"max_loads": 0, "max_wait": 0.0, **limits})  # type: ignore[arg-type]
    return SchedulingState(effects, rule or OneAtATime(), effects.facts, settings), effects


# --- TicketQueue


def test_a_line_serves_higher_priorities_first_then_by_arrival() -> None:
    queue = TicketQueue()
    low, first, second = put(queue, "a", -1), put(queue, "a", 5), put(queue, "a", 5)
    line = queue.line("a")
    assert line is not None
    assert list(line.in_turn(NEVER)) == [first, second, low]
    assert line.oldest is low


def test_a_ticket_that_comes_back_has_its_old_place() -> None:
    queue = TicketQueue()
    later, back = put(queue, "a", arrived=2.0), put(queue, "a", arrived=1.0)
    line = queue.line("a")
    assert line is not None
    assert list(line.in_turn(NEVER)) == [back, later]


def test_overdue_tickets_are_served_by_age_before_all_others() -> None:
    queue = TicketQueue()
    old, new = put(queue, "a", -1, arrived=1.0), put(queue, "a", 5, arrived=9.0)
    put(queue, "b", 0, arrived=2.0)
    line = queue.line("a")
    assert line is not None
    assert list(line.in_turn(overdue=1.0)) == [old, new]
    assert [line.replica for line in queue.lines_in_turn(NEVER)] == ["a", "b"]
    assert [line.replica for line in queue.lines_in_turn(2.0)] == ["a", "b"]
    queue.remove(old.ticket)
    assert [line.replica for line in queue.lines_in_turn(2.0)] == ["b", "a"]


def test_a_line_without_tickets_is_removed() -> None:
    queue = TicketQueue()
    waiting = put(queue, "a")
    assert queue.remove(waiting.ticket) is waiting
    assert queue.remove(waiting.ticket) is None
    assert (queue.line("a"), queue.lines(), len(queue)) == (None, [], 0)


def test_other_priorities_sort_every_line_anew_and_keep_arrivals() -> None:
    queue = TicketQueue()
    first, second, third = put(queue, "a", 1), put(queue, "a", 2), put(queue, "a", 3)
    queue.rank(lambda ticket: 7 if ticket is second.ticket else 0)
    line = queue.line("a")
    assert line is not None
    assert [each.ticket for each in line.in_turn(NEVER)] == [second.ticket, first.ticket, third.ticket]
    assert [each.ticket for each in queue.tickets()] == [first.ticket, second.ticket, third.ticket]


# --- SwapsInFlight and ReplicaUsage


def test_a_cancelled_swap_loads_nothing_but_still_touches_its_replicas() -> None:
    swaps = SwapsInFlight()
    swap = SwapInFlight(id=SwapId(1), target="a", evict=["b"])
    swaps.add(swap)
    assert (swaps.loads(), swaps.loading("a")) == ([swap], swap)
    swap.cancelled = True
    assert (swaps.loads(), swaps.loading("a")) == ([], None)
    assert swaps.touch("a")
    assert swaps.touch("b")
    assert list(swaps.targets()) == ["a"]
    assert swaps.remove(SwapId(1)) is swap
    assert swaps.remove(SwapId(1)) is None


@pytest.mark.parametrize(
    ("target", "evict", "collides"),
    [("c", [], False), ("c", ["a"], True), ("b", [], True), ("c", ["b"], True), ("c", ["d"], False)],
)
def test_swaps_collide_if_one_evicts_what_the_other_touches(target: str, evict: list[str], collides: bool) -> None:
    swaps = SwapsInFlight()
    swaps.add(SwapInFlight(id=SwapId(1), target="a", evict=["b"]))
    assert swaps.collide_with(target, evict) is collides


def test_usage_counts_requests_and_sorts_by_last_use() -> None:
    usage = ReplicaUsage()
    usage.begin("a")
    usage.begin("b")
    usage.end("a")
    usage.end("a")
    assert (usage.in_flight("a"), usage.in_flight("b")) == (0, 1)
    assert usage.least_recent_first(["a", "c", "b"]) == ["c", "b", "a"]
    usage.loaded("a", 5.0)
    assert (usage.loaded_after("a", 4.0), usage.loaded_after("a", 5.0), usage.loaded_after("b", 0.0)) == (
        True,
        False,
        False,
    )


# --- SchedulingState


def test_the_state_of_a_replica_decides_whether_it_can_serve_or_start() -> None:
    view, effects = state(ready="a")
    effects.states["c"] = ReplicaState.STOPPING
    assert [view.can_serve(each) for each in ("a", "b", "c", "ghost")] == [True, False, False, False]
    assert [view.can_start(each) for each in ("a", "b", "c", "ghost")] == [False, True, False, False]
    assert [view.is_lost(each) for each in ("a", "b", "ghost")] == [False, False, True]
    view.stopping.add("a")
    assert not view.can_serve("a")


def test_a_replica_has_room_up_to_its_concurrency() -> None:
    view, _ = state(concurrency=1)
    assert view.has_room("a")
    view.usage.begin("a")
    assert not view.has_room("a")


def test_a_started_swap_is_remembered() -> None:
    view, effects = state(ready="a", max_loads=1)
    evict = view.evictions("b", view.running())
    view.start("b", evict, view.running(), cramped=False)
    assert effects.log == ["swap b -a"]
    assert view.running() == ["a", "b"]
    assert view.is_loading_enough()
    assert view.swaps.loading("b") is not None


def test_swappers_are_not_told_of_a_load_whose_replica_is_gone() -> None:
    scheduler, effects = state(ready="b")
    scheduler.start("a", [], ["b"], cramped=False)
    assert sorted(scheduler.running()) == ["a", "b"]
    host = msgspec.structs.replace(effects.facts, replicas={"b": effects.facts.replicas["b"]})
    scheduler.reconfigure(OneAtATime(), host, SchedulingLimits())
    effects.states.pop("a", None)
    assert scheduler.running() == ["b"]


@pytest.mark.parametrize("obstacle", SwapObstacle)
def test_each_obstacle_is_found(obstacle: SwapObstacle) -> None:
    view, _ = state(ready="ac", max_loads=1, min_residency=10.0)
    if obstacle is SwapObstacle.STOPPING:
        view.stopping.add("a")
    elif obstacle is SwapObstacle.SWAP:
        view.swaps.add(SwapInFlight(id=SwapId(1), target="a", evict=[]))
    elif obstacle is SwapObstacle.LOADS:
        view.swaps.add(SwapInFlight(id=SwapId(1), target="c", evict=[]))
    elif obstacle is SwapObstacle.RESIDENCY:
        view.usage.loaded("a", 1.0)
    elif obstacle is SwapObstacle.BUSY:
        view.usage.begin("a")
    assert view.obstacle("b", ["a"], now=5.0) is obstacle


def test_a_cramped_target_evicts_every_dispensable_replica() -> None:
    view, _ = state(ByRule({"b": "a"}), ready="ac")
    assert list(view.evictions("b", ["a", "c"])) == ["a"]
    assert list(view.evictions("b", ["a", "c"], cramped=True)) == ["a", "c"]


def test_max_wait_decides_since_when_a_ticket_is_overdue() -> None:
    assert state()[0].overdue(100.0) == NEVER
    assert state(max_wait=60.0)[0].overdue(100.0) == 40.0


# --- StarvationClaims


def test_without_an_overdue_ticket_there_is_no_claim() -> None:
    view, _ = state(ready="a", max_wait=60.0)
    queue = TicketQueue()
    waiting = put(queue, "b")
    claims = StarvationClaims(queue, view, now=59.0)
    assert claims.barrier("a") == StarvationClaims.NO_BARRIER
    assert not claims.block(waiting.age, "c", ["a"], ["a"])


def test_a_claim_holds_back_newer_requests_for_the_replica_it_evicts() -> None:
    view, _ = state(ready="a", max_wait=60.0)
    view.usage.begin("a")
    queue = TicketQueue()
    overdue = put(queue, "b")
    assert StarvationClaims(queue, view, now=60.0).barrier("a") == overdue.age
    view.stopping.add("a")
    assert StarvationClaims(queue, view, now=60.0).barrier("a") == StarvationClaims.NO_BARRIER, "it would be in vain"


def test_a_claim_blocks_newer_swaps_that_collide_or_give_it_more_to_evict() -> None:
    view, _ = state(ByRule({"b": "ac"}), ready="a", max_wait=60.0)
    view.usage.begin("a")
    queue = TicketQueue()
    overdue, newer = put(queue, "b"), put(queue, "c", arrived=1.0)
    claims = StarvationClaims(queue, view, now=60.0)
    assert claims.block(newer.age, "c", ["a"], ["a"]), "both evict a"
    assert claims.block(newer.age, "c", [], ["a"]), "b would evict c again"
    assert not claims.block(overdue.age, "c", ["a"], ["a"]), "it is not older"


def test_a_ticket_that_can_never_be_loaded_has_no_claim() -> None:
    view, _ = state(ByRule({"b": None}), ready="a", max_wait=60.0)
    queue = TicketQueue()
    put(queue, "b")
    with pytest.raises(LoadFailed):
        view.evictions("b", ["a"])
    assert StarvationClaims(queue, view, now=60.0).barrier("a") == StarvationClaims.NO_BARRIER


def test_facts_of_an_unknown_replica_are_defaults() -> None:
    view, effects = state()
    view.reconfigure(OneAtATime(), HostFacts(name="local"), effects.limits)
    assert view.hosted("a") == HostedReplica(replica="a", model="a")
