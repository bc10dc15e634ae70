from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enginehouse_kit.offload import OFFLOAD_ORDERS, OffloadCandidate, plan_offload


def candidate(name: str, blocks: int, remaining: int = 0, priority: int = 0) -> OffloadCandidate:
    return OffloadCandidate(request_id=name, blocks=blocks, remaining_tokens=remaining, priority=priority)


def selected(*candidates: OffloadCandidate, deficit: int, order: str = "fewest_blocks") -> list[str]:
    return [each.request_id for each in plan_offload(candidates, deficit, order).selected]


def test_without_a_deficit_no_request_is_selected() -> None:
    plan = plan_offload([candidate("a", 5)], 0)
    assert (plan.selected, plan.satisfied) == ([], True)


def test_the_smallest_go_first() -> None:
    assert selected(candidate("big", 9), candidate("a", 2), candidate("b", 3), deficit=5) == ["a", "b"]


def test_what_a_later_one_makes_needless_stays() -> None:
    assert selected(candidate("a", 1), candidate("b", 2), candidate("c", 5), deficit=5) == ["c"]


def test_what_frees_nothing_stays() -> None:
    assert selected(candidate("shared", 0), candidate("own", 3), deficit=2) == ["own"]


def test_among_equals_the_first_goes_first() -> None:
    assert selected(candidate("x", 4), candidate("a", 4), deficit=4) == ["x"]


def test_a_plan_that_frees_too_little_is_not_satisfied() -> None:
    plan = plan_offload([candidate("a", 2), candidate("b", 1)], 9)
    assert plan.total_blocks_freed == 3
    assert not plan.satisfied


def test_other_orders() -> None:
    short, long = candidate("short", 2, remaining=3, priority=9), candidate("long", 7, remaining=300, priority=0)
    assert selected(short, long, deficit=2, order="most_remaining") == ["long"]
    assert selected(short, long, deficit=2, order="least_urgent") == ["short"]


@given(
    st.lists(st.integers(0, 20).map(lambda blocks: candidate("r", blocks))),
    st.integers(0, 60),
    st.sampled_from(OFFLOAD_ORDERS),
)
def test_a_plan_is_satisfied_if_possible_and_selects_no_request_without_need(
    candidates: list[OffloadCandidate], deficit: int, order: str
) -> None:
    plan = plan_offload(candidates, deficit, order)
    assert plan.total_blocks_freed == sum(each.blocks for each in plan.selected)
    assert plan.satisfied == (sum(each.blocks for each in candidates) >= deficit)
    if plan.satisfied:
        assert all(plan.total_blocks_freed - each.blocks < deficit for each in plan.selected)
