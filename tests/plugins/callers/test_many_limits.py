"""More names than workers have places for: clients choose them."""

from __future__ import annotations

import multiprocessing
import os
import tracemalloc
from time import thread_time

import pytest

from enginehouse.interfaces.accounting import LimitPeriod, LimitRule
from enginehouse_callers.memory_limits import MemoryLimits
from enginehouse_callers.shared_limits import LimitMemory, SharedLimitStore
from enginehouse_kit.limit_stores import LimitStore
from enginehouse_kit.limits.local_limit import MOST_PASSING
from tests.support.fake_clock import FakeClock

EPOCH = 1_700_000_000.0
MINUTE = LimitRule(1, "minute")


def stores(clock: FakeClock, memory: LimitMemory, number: int = 2) -> list[SharedLimitStore]:
    made = [SharedLimitStore(memory, each) for each in range(number)]
    for store in made:
        store.prepare("", clock.now, lambda: EPOCH + clock.now())
    return made


def admitted(store: LimitStore, name: str, rule: LimitRule = MINUTE, *, passing: bool = True) -> bool:
    limit = store.passing_limit(name, rule) if passing else store.limit(name, rule)
    return store.take([(limit, 1.0)]) is None


def test_keys_that_are_made_later_never_get_twice_their_limit() -> None:
    one, two = stores(FakeClock(), LimitMemory(2))
    for number in range(20_000):
        assert admitted(one, f"key/a/limits[0]/user/{number}", LimitRule(1, "day"))
    later = [admitted(store, "key/later/limit", LimitRule(3, "minute"), passing=False) for store in (one, two) * 3]
    assert later.count(True) == 3


def test_a_name_that_is_used_stays_known_and_the_log_says_once_what_does_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    one, two = stores(clock, LimitMemory(2, most_passing=64))
    assert admitted(one, "known", LimitRule(1, "day"))
    for number in range(2000):
        clock.stall(0.001)
        assert admitted(two, f"name-{number}", LimitRule(1, "day"))
        two.passing_limit("known", LimitRule(1, "day")).take(0.0)
    assert not admitted(two, "known", LimitRule(1, "day"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    clock.stall(61)
    for number in range(200):
        assert admitted(two, f"later-{number}", LimitRule(1, "day"))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("per", ["minute", "day", "at_once"])
def test_the_place_of_a_limit_that_is_whole_is_used_again(per: LimitPeriod, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    store = stores(clock, LimitMemory(2, most_passing=16))[0]
    for _ in range(3):
        for number in range(16):
            limit = store.passing_limit(f"{clock.now()}-{number}", LimitRule(1, per))
            limit.take(1)
            if per == "at_once":
                limit.take(-1)
        clock.stall(86400)
    assert not caplog.records


def test_a_limit_that_lost_its_place_gives_nothing_back_that_another_has() -> None:
    clock = FakeClock()
    one, two = stores(clock, LimitMemory(2, most_passing=16))
    held = one.passing_limit("held", LimitRule(1, "at_once"))
    held.take(1)
    for number in range(100):
        two.passing_limit(f"other-{number}", LimitRule(1, "minute")).take(1)
    assert not admitted(two, "held", LimitRule(1, "at_once")), "one that is in use keeps its place"
    for number in range(16):
        two.passing_limit(f"running-{number}", LimitRule(2, "at_once")).take(1)
    held.take(-1)
    rest = [two.passing_limit(f"running-{number}", LimitRule(2, "at_once")).left() for number in range(16)]
    assert max(rest) <= 2


def test_a_full_table_takes_as_long_as_an_empty_one() -> None:
    store = stores(FakeClock(), LimitMemory(2))[0]

    def seconds(first: int) -> float:
        began = thread_time()
        for number in range(first, first + 1000):
            admitted(store, f"name-{number}", LimitRule(1, "day"))
        return thread_time() - began

    early = min(seconds(number * 1000) for number in range(3))
    for number in range(3, 20):
        seconds(number * 1000)
    assert min(seconds(number * 1000) for number in range(20, 23)) < 20 * early, "it was 500 times as long"


@pytest.mark.long
@pytest.mark.parametrize(("kind", "names"), [("alone", 20_000), ("workers", 5_000)])
def test_thousands_of_further_names_take_no_memory(kind: str, names: int) -> None:
    clock = FakeClock()
    store: LimitStore = stores(clock, LimitMemory(2))[0] if kind == "workers" else MemoryLimits()
    store.prepare("", clock.now, lambda: EPOCH)
    for number in range(MOST_PASSING):
        admitted(store, f"first-{number}")
    tracemalloc.start()
    for number in range(names):
        admitted(store, f"further-{number}")
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 200 * names


def test_the_last_used_names_stay_known_in_one_process(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = FakeClock(), MemoryLimits()
    store.prepare("", clock.now, lambda: EPOCH)
    running = LimitRule(1, "at_once")
    assert admitted(store, "running", running)
    assert admitted(store, "known")
    for number in range(2 * MOST_PASSING):
        admitted(store, f"name-{number}")
        if number % 1000 == 0:
            assert not admitted(store, "known")
    assert not admitted(store, "running", running), "what runs is not forgotten"
    assert admitted(store, "name-0")
    assert len(caplog.records) == 1


def test_processes_that_ask_at_the_same_time_share_a_limit_exactly() -> None:
    one, two = stores(FakeClock(), LimitMemory(2))
    names = [f"name-{number}" for number in range(2000)]
    reader, writer = multiprocessing.Pipe(duplex=False)

    def ask() -> None:
        writer.send(sum(admitted(two, name) for name in names))
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=ask)
    child.start()
    own = sum(admitted(one, name) for name in names)
    child.join()
    assert own + reader.recv() == len(names)
