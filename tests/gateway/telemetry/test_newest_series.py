"""Backends and replicas come and go, with ever new names: what is counted by them has a bound."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse.telemetry.counters import Counters


@pytest.mark.parametrize(
    ("counted", "labels"),
    [("stale", 1), ("retries", 1), ("evictions", 1), ("hedges", 2), ("continuations", 3)],
)
def test_of_too_many_the_oldest_is_dropped(counted: str, labels: int) -> None:
    counters = Counters(max_series=2)
    by_name: dict[Any, int] = getattr(counters, counted)
    names = [name if labels == 1 else (name, *["won"] * (labels - 1)) for name in ("gone", "a", "b", "a")]
    for name in names:
        by_name[name] += 1
    assert by_name == {names[1]: 2, names[2]: 1}


def test_so_are_the_durations_of_swaps() -> None:
    counters = Counters(max_series=1)
    for target in ("gone@a", "m@a"):
        counters.swaps[target, "ready"].observe(1.0)
    assert [*counters.swaps] == [("m@a", "ready")]
