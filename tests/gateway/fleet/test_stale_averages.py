"""Averages of backends that get no requests."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random

import pytest

from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.routing_facts import Load
from enginehouse_kit.testing import requirements
from tests.support.fake_clock import StoppedClock
from tests.support.routing import make_router, take_route

Make = Callable[..., BackendInfo]


def serve(
    fleet: Fleet, clock: StoppedClock, strategy: str, at_once: int, ms: float = 20, spread: float = 0
) -> Counter[str]:
    """How many of 600 requests each backend gets, ``at_once``, where each answer takes ``ms``, give or take a share."""
    chance = Random(1)
    router, asked = make_router(strategy), Counter[str]()
    live: deque[Load] = deque()
    for _ in range(600):
        if len(live) == at_once:
            took = ms * chance.uniform(1 - spread, 1 + spread)
            clock.now += took / 1000 / at_once
            load = live.popleft()
            load.end()
            fleet.answered(load, took)
        chosen = take_route(router, requirements(model="m"), fleet.snapshot).chosen
        chosen.load.begin()
        asked[chosen.backend] += 1
        live.append(chosen.load)
    return asked


@pytest.mark.parametrize("strategy", ["smart", "weighted"])
@pytest.mark.parametrize("at_once", [1, 2, 4, 8, 32])
@pytest.mark.parametrize("slow", [{"a": 3.0}, {"b": 0.4}, {"c": 3.0}, {"a": 1.0, "b": 1.0}, {}])
def test_a_slow_start_is_not_held_against_a_backend_for_ever(
    fleet: Fleet, clock: StoppedClock, backend: Make, strategy: str, at_once: int, slow: dict[str, float]
) -> None:
    for name in "abc":
        fleet.add(backend(name, "m"))
        fleet.answered(fleet.load(name), 1000 * slow.get(name, 0.02))
    asked = serve(fleet, clock, strategy, at_once)
    assert min(asked[name] for name in "abc") >= 150, asked


def test_engines_that_answer_at_once_are_equals_too(fleet: Fleet, clock: StoppedClock, backend: Make) -> None:
    for name in "abc":
        fleet.add(backend(name, "m"))
        fleet.answered(fleet.load(name), 3000 if name == "c" else 1)
    asked = serve(fleet, clock, "smart", at_once=1, ms=1)
    assert min(asked[name] for name in "abc") >= 150, asked


@pytest.mark.parametrize("ms", [10, 200])
@pytest.mark.parametrize("first_ms", [10, 200, 3000])
def test_averages_on_a_score_boundary_do_not_part_equals(
    fleet: Fleet, clock: StoppedClock, backend: Make, first_ms: float, ms: float
) -> None:
    for name in "abc":
        fleet.add(backend(name, "m"))
        fleet.answered(fleet.load(name), first_ms if name == "c" else ms)
    asked = serve(fleet, clock, "smart", at_once=1, ms=ms, spread=0.5)
    assert min(asked[name] for name in "abc") >= 150, asked


def test_a_slow_backend_is_tried_now_and_then(fleet: Fleet, backend: Make) -> None:
    for name in "ab":
        fleet.add(backend(name, "m"))
    router, asked = make_router("smart"), Counter[str]()
    for _ in range(1000):
        chosen = take_route(router, requirements(model="m"), fleet.snapshot).chosen
        asked[chosen.backend] += 1
        fleet.answered(chosen.load, 2000 if chosen.backend == "a" else 200)
    assert 5 <= asked["a"] <= 50


def test_averages_of_other_models_count_for_nothing(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.add(backend("b", "other"))
    fleet.answered(fleet.load("a"), 1000)
    for _ in range(100):
        fleet.answered(fleet.load("b"), 10)
    assert fleet.load("a").avg_latency_ms == 1000


def test_the_next_answer_of_a_stale_average_weighs_more(fleet: Fleet, backend: Make) -> None:
    for name in "ab":
        fleet.add(backend(name, "m"))
    for _ in range(200):
        fleet.answered(fleet.load("a"), 1000)
        fleet.answered(fleet.load("b"), 10)
    for _ in range(200):
        fleet.answered(fleet.load("b"), 10)
    assert fleet.load("a").avg_latency_ms < 11
    fleet.answered(fleet.load("a"), 1000)
    assert fleet.load("a").avg_latency_ms > 150, "it is slow yet, so others are preferred again"


def test_an_engine_that_others_overtake_does_not_look_quick() -> None:
    load = Load()
    for _ in range(200):
        load.answered(20)
    for _ in range(10):
        load.overtaken(500)
    assert load.avg_latency_ms > 300
    load.overtaken(5)
    assert load.avg_latency_ms > 300, "it is no answer of 5 ms"
