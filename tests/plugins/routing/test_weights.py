"""Backends with a weight get their share of the requests."""

from __future__ import annotations

from collections import Counter

import pytest

from enginehouse import Candidate, Strategy
from enginehouse_kit.testing import candidate, requirements
from tests.support.routing import make_strategy, take_pick

WEIGHTS = {"a": 3.0, "b": 1.0, "c": 0.5}


def fleet() -> list[Candidate]:
    return [candidate(name, weight=weight) for name, weight in WEIGHTS.items()]


def served(strategy: Strategy, number: int) -> Counter[str]:
    """The picks of so many requests that all stay."""
    candidates, found = fleet(), Counter[str]()
    for request in range(number):
        chosen = take_pick(strategy, requirements(session=f"s{request}"), candidates)
        chosen.load.begin()
        found[chosen.backend] += 1
    return found


@pytest.mark.parametrize(
    ("strategy", "most_off"), [("round_robin", 1), ("random", 60), ("least_pending", 2), ("p2c", 25), ("session", 60)]
)
def test_weights_are_shares(strategy: str, most_off: int) -> None:
    made = make_strategy(strategy) if strategy == "round_robin" else make_strategy(strategy, seed=4)
    found = served(made, 900)
    assert all(abs(found[name] - 200 * weight) <= most_off for name, weight in WEIGHTS.items()), found


def test_a_rotation_by_weight_is_even() -> None:
    strategy, candidates = make_strategy("round_robin"), fleet()[:2]
    picks = [take_pick(strategy, requirements(), candidates).backend for _ in range(12)]
    assert all(picks[n : n + 4].count("b") == 1 for n in range(0, 12, 4))


def test_a_session_stays_whatever_the_weights() -> None:
    strategy = make_strategy("session", seed=1)
    places = [take_pick(strategy, requirements(session="s"), fleet()).backend for _ in range(5)]
    assert len(set(places)) == 1
