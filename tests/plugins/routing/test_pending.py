from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from enginehouse import Strategy
from enginehouse_kit.testing import candidate, requirements
from enginehouse_routing.strategies import LeastPending, PowerOfTwo
from tests.support.routing import take_pick

NEEDS = requirements()


def least_pending() -> LeastPending:
    return LeastPending(LeastPending.Config(seed=1))


def p2c() -> PowerOfTwo:
    return PowerOfTwo(PowerOfTwo.Config(seed=1))


def test_the_fewest_requests_win() -> None:
    fleet = [candidate(name, pending=pending) for name, pending in (("a", 3), ("b", 1), ("c", 2))]
    assert take_pick(least_pending(), NEEDS, fleet).backend == "b"


@pytest.mark.parametrize("made", [least_pending, p2c])
def test_equal_candidates_are_picked_by_chance(made: Callable[[], Strategy]) -> None:
    strategy, fleet = made(), [candidate(name) for name in "abcd"]
    picks = Counter(take_pick(strategy, NEEDS, fleet).backend for _ in range(400))
    assert all(60 < picks[name] < 140 for name in "abcd")


@pytest.mark.parametrize("made", [least_pending, p2c])
def test_a_ready_replica_is_picked_first(made: Callable[[], Strategy]) -> None:
    fleet = [candidate("cold", wake_s=2.0), candidate("ready", pending=50)]
    assert take_pick(made(), NEEDS, fleet).backend == "ready"


def test_of_two_drawn_ones_the_busier_one_is_never_picked() -> None:
    strategy, fleet = p2c(), [candidate(name, pending=pending) for pending, name in enumerate("abcd")]
    picks = Counter(take_pick(strategy, NEEDS, fleet).backend for _ in range(600))
    assert picks["d"] == 0
    assert picks["a"] > picks["b"] > picks["c"] > 0
