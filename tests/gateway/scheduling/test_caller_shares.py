"""Turns by which callers share engines."""

from __future__ import annotations

import pytest

from enginehouse.scheduling.flow_control import CallerShares


def test_callers_take_turns_whoever_came_first() -> None:
    shares = CallerShares()
    crowd = [shares.turn("crowd", 1.0, 100) for _ in range(3)]
    assert crowd == [0, 100, 200]
    assert shares.turn("single", 1.0, 100) == 0


def test_nobody_saves_up_turns() -> None:
    shares = CallerShares()
    for _ in range(5):
        shares.granted(shares.turn("crowd", 1.0, 100))
    assert shares.turn("single", 1.0, 100) == 400


def test_nobody_owes_anything_once_all_have_ended() -> None:
    shares = CallerShares()
    for _ in range(100):
        shares.turn("crowd", 1.0, 100)
    for _ in range(99):
        shares.ended("crowd", 1.0, 100, used=100, prompt=100)
    assert shares.turn("single", 1.0, 100) < shares.turn("crowd", 1.0, 100)
    for caller in ("crowd", "single", "crowd"):
        shares.ended(caller, 1.0, 100, used=100, prompt=100)
    first = [shares.turn(caller, 1.0, 100) for caller in ("crowd", "single")]
    assert first[0] == first[1]


def test_a_weight_makes_turns_shorter() -> None:
    shares = CallerShares()
    assert [shares.turn("heavy", 4.0, 100) for _ in range(3)] == [0, 25, 50]


def test_what_was_used_counts_in_the_end() -> None:
    shares = CallerShares()
    expected = shares.expected(100, None)
    shares.turn("a", 1.0, expected)
    shares.ended("a", 1.0, expected, used=1100, prompt=100)
    assert shares.turn("a", 1.0, 1) == 1100
    assert shares.expected(100, None) == pytest.approx(100 + 0.97 * 256 + 0.03 * 1000)
    assert shares.expected(100, 10) == 110
    shares.ended("unknown", 1.0, 1, used=1, prompt=1)
