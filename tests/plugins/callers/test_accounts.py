"""Limits of one caller: further ones for models and end users, and whatever a request asks for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse import Requirements
from enginehouse.callers import KeySettings
from enginehouse.errors import RateLimited
from enginehouse.requests import Tokens
from enginehouse.telemetry.answer_meter import NO_ANSWER
from enginehouse_callers.accounts import KeyHolder, configured
from enginehouse_callers.keyring import Keyring
from enginehouse_callers.shared_limits import LimitMemory, SharedLimitStore
from tests.support.fake_clock import StoppedClock
from tests.support.served_gateway import limits_at


def settings(**more: Any) -> KeySettings:
    return msgspec.convert({"name": "a", "key": "a-secret", **more}, KeySettings)


def holder(**more: Any) -> KeyHolder:
    return configured(None, settings(**more), limits_at(StoppedClock(1000.0)))


def again(known: KeyHolder, **more: Any) -> None:
    """Another configuration has the key."""
    configured(known, settings(**more), known.account.limits)


def admitted(known: KeyHolder, model: str = "m", times: int = 20) -> int:
    """How many of so many requests are let in."""
    for number in range(times):
        try:
            known.admit(Requirements(model=model), 1)
        except RateLimited:  # noqa: PERF203 - those before the refusal count
            return number
    return times


@pytest.mark.parametrize("most", [10**400, 10**30])
def test_a_request_for_any_number_of_tokens_gives_back_what_it_took(most: int) -> None:
    known = holder(max_concurrent=1, tokens_per_day=1000)
    for _ in range(2):
        reserved = known.admit(Requirements(model="m", estimated_tokens=100), most)
        assert reserved is not None
        reserved.settle(100, NO_ANSWER, "m")
    assert [(each.limit, each.left) for each in known.account.left()] == [
        ("max_concurrent", 1),
        ("tokens_per_day", 1000),
    ]


def test_two_entries_for_the_same_models_both_hold_after_a_reload() -> None:
    limits = [{"models": ["m"], "requests_per_minute": 3}, {"models": ["m"], "tokens_per_day": 1000}]
    known = holder(limits=limits)
    again(known, limits=limits)
    assert [each.limit for each in known.account.left()] == ["requests_per_minute", "tokens_per_day"]
    assert admitted(known) == 3


def test_an_entry_that_comes_before_another_one_counts_by_itself() -> None:
    first, second = {"models": ["m"], "requests_per_minute": 3}, {"models": ["n"], "requests_per_minute": 4}
    known = holder(limits=[first])
    assert admitted(known, times=2) == 2
    again(known, limits=[second, first])
    assert admitted(known, "n") == 4
    assert admitted(known, "m") == 1, "two were let in before"


def test_processes_that_began_before_and_after_a_reload_count_together() -> None:
    memory, clock = LimitMemory(2), StoppedClock(1000.0)
    first, second = {"models": ["m"], "requests_per_minute": 3}, {"models": ["n"], "requests_per_minute": 4}
    processes = []
    for number, before in enumerate(([first], [second, first])):
        limits = limits_at(clock)
        limits.store = SharedLimitStore(memory, number)
        limits.store.prepare("", clock, clock)
        processes.append(configured(None, settings(limits=before), limits))
        configured(processes[-1], settings(limits=[second, first]), limits)
    assert [admitted(each, times=2) for each in processes] == [2, 1]


def test_heads_that_are_filled_with_spaces_are_not_kept() -> None:
    ring = Keyring([settings()], limits_at(StoppedClock(1000.0)))
    for number in range(3):
        shown = b"Bearer " + b" " * (10_000 + number) + b"a-secret"
        found = ring.caller([(b"authorization", shown)])
        assert found is not None
        assert found.name == "a"
    ring.caller([(b"authorization", b"Bearer a-secret")])
    assert [len(value) for value in ring._seen] == [len(b"Bearer a-secret")]


def test_a_request_without_an_answer_costs_no_tokens() -> None:
    known = holder(tokens_per_day=1000)
    asked = Requirements(model="m", estimated_tokens=100)
    used = []
    for answer in (NO_ANSWER, (50, 5, None), (50, 0, None), (0, 0, Tokens(30, 7))):
        before = next(known.account.left()).left
        reserved = known.admit(asked, 10)
        assert reserved is not None
        reserved.settle(100, answer, "m")
        used.append(before - next(known.account.left()).left)
    assert used == [0, 105, 110, 37]
