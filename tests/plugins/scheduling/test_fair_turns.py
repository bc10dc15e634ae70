"""Turns by which callers share engines."""

from __future__ import annotations

import pytest

from enginehouse_scheduling.fair import FairTurns


def begins(turns: FairTurns, caller: str, weight: float = 1.0) -> float:
    """The turn of a request of a hundred tokens, none of them in its answer."""
    return turns.next(caller, weight, 100, 0).at


def test_callers_take_turns_whoever_came_first() -> None:
    turns = FairTurns()
    assert [begins(turns, "crowd") for _ in range(3)] == [0, 100, 200]
    assert begins(turns, "single") == 0


def test_nobody_saves_up_turns() -> None:
    turns = FairTurns()
    for _ in range(5):
        turns.next("crowd", 1.0, 100, 0).granted()
    assert begins(turns, "single") == 400


def test_nobody_owes_anything_once_all_have_ended() -> None:
    turns = FairTurns()
    crowd = [turns.next("crowd", 1.0, 100, 0) for _ in range(100)]
    for turn in crowd[1:]:
        turn.ended(100)
    live = [crowd[0], *(turns.next(caller, 1.0, 100, 0) for caller in ("single", "crowd"))]
    assert live[1].at < live[2].at
    for turn in live:
        turn.ended(100)
    assert begins(turns, "crowd") == begins(turns, "single")


def test_a_weight_makes_turns_shorter() -> None:
    turns = FairTurns()
    assert [begins(turns, "heavy", 4.0) for _ in range(3)] == [0, 25, 50]


def test_what_was_used_counts_in_the_end() -> None:
    turns = FairTurns()
    other = turns.next("other", 1.0, 1, 0)
    turn = turns.next("a", 1.0, 100, None)
    assert turn.expected == 100 + 256
    turn.ended(1100)
    assert begins(turns, "a") == 1100
    assert turns.next("a", 1.0, 100, None).expected == pytest.approx(100 + 0.97 * 256 + 0.03 * 1000)
    assert turns.next("a", 1.0, 100, 10).expected == 110
    other.ended(1)


def test_a_refused_request_costs_nothing_and_tells_nothing_of_answers() -> None:
    turns = FairTurns()
    turns.next("other", 1.0, 100, None)
    for _ in range(50):
        turns.next("a", 1.0, 100, None).ended(100)
    turn = turns.next("a", 1.0, 100, None)
    assert (turn.at, turn.expected) == (0, 100 + 256)


def test_callers_that_ask_for_nothing_are_forgotten_while_others_are_served() -> None:
    turns = FairTurns()
    debtor = turns.next("debtor", 1.0, 1_000_000, 0)
    for number in range(20_000):
        turns.next(str(number), 1.0, 100, 0).granted()
        turns.next("busy", 1.0, 100, 0)
    assert len(turns._ends) == 10_000
    assert begins(turns, "busy") == 2_000_000, "one that asks stays"
    debtor.ended(1_000_000)
    assert begins(turns, "debtor") == 0
