from __future__ import annotations

from datetime import datetime, timezone

import pytest

from enginehouse.callers import LimitRule
from enginehouse_kit.limits import LocalLimit
from tests.support.fake_clock import StoppedClock


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("per", "seconds"), [("day", 2 * 3600), ("month", 2 * 3600 + 86400 * 6)], ids=["a day", "a month"]
)
def test_a_limit_of_a_period_is_whole_when_the_next_one_begins(per: str, seconds: float) -> None:
    clock = StoppedClock(at("2024-02-23T22:00:00"))  # of a leap year
    limit = LocalLimit(LimitRule(100, "day" if per == "day" else "month"), clock, clock)
    limit.take(99)
    assert limit.seconds_short(1) == 0
    assert limit.seconds_short(2) == pytest.approx(seconds)
    clock.now += seconds - 1
    assert limit.left() == 1
    assert limit.full_in() == pytest.approx(1)
    clock.now += 1
    assert (limit.left(), limit.full_in()) == (100, 0)


def test_december_is_followed_by_january() -> None:
    clock = StoppedClock(at("2023-12-31T23:59:00"))
    limit = LocalLimit(LimitRule(5, "month"), clock, clock)
    limit.take(5)
    assert limit.seconds_short(1) == pytest.approx(60)


def test_a_minute_refills_evenly() -> None:
    clock = StoppedClock(0.0)
    limit = LocalLimit(LimitRule(60, "minute"), clock, clock)
    limit.take(60)
    assert limit.seconds_short(3) == pytest.approx(3)
    clock.now = 30.0
    assert limit.left() == limit.full_in() == pytest.approx(30)


def test_more_than_the_limit_is_there_when_the_limit_is_whole() -> None:
    clock = StoppedClock(0.0)
    limit = LocalLimit(LimitRule(60, "minute"), clock, clock)
    assert limit.seconds_short(1000) == 0
    limit.take(1000)
    assert limit.seconds_short(1000) == pytest.approx(1000)
