"""Limits of keys that several processes count together."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from enginehouse.interfaces.accounting import LimitPeriod, LimitRule
from enginehouse_callers.memory_limits import MemoryLimits
from enginehouse_callers.shared_limits import LimitMemory, SharedLimitStore
from enginehouse_kit.limit_stores import Limit, LimitStore
from tests.support.fake_clock import FakeClock

EPOCH = 1_700_000_000.0


def limits(clock: FakeClock, rule: LimitRule, processes: int = 2) -> tuple[LimitMemory, list[Limit]]:
    """One limit, as each process sees it."""
    memory = LimitMemory(processes)
    stores = [SharedLimitStore(memory, number) for number in range(processes)]
    for store in stores:
        store.prepare("", clock.now, lambda: EPOCH + clock.now())
    return memory, [store.limit("key/limit", rule) for store in stores]


def test_what_one_process_takes_is_gone_for_the_other() -> None:
    clock = FakeClock()
    _, (one, two) = limits(clock, LimitRule(10, "minute"))
    one.take(6)
    two.take(3)
    assert one.left() == two.left() == pytest.approx(1)
    assert two.seconds_short(1) == 0
    assert one.seconds_short(2) == pytest.approx(6)
    assert two.full_in() == pytest.approx(54)
    clock.stall(6)
    assert two.seconds_short(2) == pytest.approx(0)
    clock.stall(600)
    assert one.left() == 10


@pytest.mark.parametrize(("per", "seconds"), [("day", 86400.0), ("month", 31 * 86400.0)])
def test_a_limit_is_whole_again_when_its_period_begins(per: LimitPeriod, seconds: float) -> None:
    clock = FakeClock()
    _, (one, two) = limits(clock, LimitRule(5, per))
    one.take(7)
    assert two.left() == -2
    assert 0 < two.seconds_short(1) == two.full_in() <= seconds
    clock.stall(two.full_in())
    assert two.left() == 5


@pytest.mark.parametrize("died", [0, 1])
def test_what_a_dead_process_had_in_use_comes_back(died: int) -> None:
    memory, seen = limits(FakeClock(), LimitRule(3, "at_once"))
    dead, living = seen[died], seen[1 - died]
    dead.take(2)
    living.take(1)
    assert living.seconds_short(1) > 0
    memory.clear(died)
    assert living.left() == 2
    living.take(-1)
    assert living.left() == 3


def test_a_limit_that_becomes_another_keeps_what_is_used() -> None:
    memory, (one, _) = limits(FakeClock(), LimitRule(10, "minute"))
    one.take(4)
    store = SharedLimitStore(memory, 1)
    store.prepare("", FakeClock().now, lambda: EPOCH)
    assert store.limit("key/limit", LimitRule(5, "minute")).left() == pytest.approx(1)


@pytest.mark.parametrize("earlier", ["alone", "workers"])
@pytest.mark.parametrize("later", ["alone", "workers"])
def test_a_gateway_that_takes_over_goes_on_with_what_is_taken(earlier: str, later: str) -> None:
    clock = FakeClock()

    def store(kind: str) -> LimitStore:
        made = SharedLimitStore(LimitMemory(2), 1) if kind == "workers" else MemoryLimits()
        made.prepare("", clock.now, lambda: EPOCH + clock.now())
        return made

    old, new = store(earlier), store(later)
    rules = {"minute": LimitRule(10, "minute"), "day": LimitRule(100, "day"), "at_once": LimitRule(2, "at_once")}
    for name, rule in rules.items():
        old.limit(name, rule).take(2)
    old.limit("unused", LimitRule(10, "minute"))
    new.limit("minute", LimitRule(20, "minute"))
    new.limit("day", rules["day"]).take(1.5)  # as the usage store knows
    taken = old.taken()
    assert set(taken) == {"minute", "day"}
    new.recall(taken)
    assert new.limit("minute", LimitRule(20, "minute")).left() == pytest.approx(18)
    assert new.limit("day", rules["day"]).left() == pytest.approx(98)
    assert new.limit("at_once", rules["at_once"]).left() == 2


def test_processes_do_not_lose_what_they_take_at_the_same_time() -> None:
    _, (one, two) = limits(FakeClock(), LimitRule(1_000_000, "day"))

    def take() -> None:
        for _ in range(2000):
            two.take(1)
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=take)
    child.start()
    for _ in range(2000):
        one.take(1)
    child.join()
    assert one.left() == 1_000_000 - 4000


def test_a_process_that_has_counted_leaves_the_limits_to_the_others() -> None:
    _, (one, two) = limits(FakeClock(), LimitRule(10, "day"))
    ours, theirs = multiprocessing.Pipe()

    def take() -> None:
        theirs.recv()
        two.take(1)
        theirs.send(None)
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=take)
    child.start()
    one.take(1)
    ours.send(None)
    counted = ours.poll(30)
    child.kill()
    child.join()
    assert counted
    assert one.left() == 8
