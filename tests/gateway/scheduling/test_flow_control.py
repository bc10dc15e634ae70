"""Which waiting request is refused."""

from __future__ import annotations

import math

import pytest

from enginehouse.domain.errors import DeadlineMissed, Shed
from enginehouse.scheduling.flow_control import Backlog, expected_wait, missed, unfit
from enginehouse.tickets import Ticket


def ticket(id: str, priority: int = 0, deadline: float = math.inf) -> Ticket:
    return Ticket(id=id, replica="m", priority=priority, deadline=deadline)


def backlog(pace_s: float) -> Backlog:
    """One that is served every ``pace_s`` seconds."""
    made = Backlog()
    for _ in range(3):
        made.add()
    for turn in range(2):
        made.granted(turn * pace_s)
    return made


def test_the_wait_is_that_at_the_pace_of_all_hosts() -> None:
    assert expected_wait([backlog(1.0)], 3) == pytest.approx(3)
    assert expected_wait([backlog(1.0), backlog(1.0)], 3) == pytest.approx(1.5)
    assert expected_wait([Backlog()], 3) == 0


def test_a_request_that_makes_its_deadline_waits() -> None:
    waiting = [ticket("1"), ticket("2", deadline=2.5)]
    assert unfit(waiting[1], waiting, [backlog(1.0)], 0.0, now=0.0) is None
    refusal = unfit(waiting[1], waiting, [backlog(1.0)], 0.0, now=0.6)
    assert refusal is not None
    assert refusal.ticket is waiting[1]
    assert isinstance(refusal.error, DeadlineMissed)
    assert refusal.error.details == {"wait_ms": 2000}


def test_the_newest_of_the_lowest_priority_is_shed() -> None:
    waiting = [ticket("1", 1), ticket("2"), ticket("3"), ticket("4", -0)]
    refusal = unfit(waiting[0], waiting, [backlog(1.0)], 3.5, now=0.0)
    assert refusal is not None
    assert refusal.ticket is waiting[3]
    assert isinstance(refusal.error, Shed)
    assert refusal.error.retry_after == 1
    assert unfit(waiting[0], waiting, [backlog(1.0)], 4.5, now=0.0) is None
    assert unfit(waiting[0], waiting, [Backlog()], 3.5, now=0.0) is None


def test_deadlines_pass() -> None:
    waiting = [ticket("1"), ticket("2", deadline=2.0)]
    assert missed(waiting, 1.9) == []
    [refusal] = missed(waiting, 2.0)
    assert refusal.ticket is waiting[1]
