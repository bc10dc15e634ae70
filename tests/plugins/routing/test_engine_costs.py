from __future__ import annotations

from itertools import count
from random import Random

import pytest

from enginehouse import Candidate
from enginehouse.domain.replica import Load
from enginehouse_kit.testing import candidate
from enginehouse_routing.engine_costs import EngineCosts
from enginehouse_routing.known_engines import EngineState, KnownEngines


def add(engine: EngineState, tokens: int) -> None:
    engine.backlog += tokens
    engine.changes.append(engine.backend)


def random_event(chance: Random, known: KnownEngines, candidates: list[Candidate]) -> None:
    """Something that changes what a candidate costs."""
    each = chance.choice(candidates)
    engine, number = known.engine(each.backend), chance.random()
    happened = chance.randrange(8)
    if happened == 0:
        known.used(each.backend)
    elif happened == 1:
        add(engine, round(1000 * number))
    elif happened == 2:
        engine.learn(number, 556, 0)
    elif happened == 3:
        engine.ended(number)
    elif happened == 4:
        each.load.begin()
    elif happened == 5:
        engine.learn(number * (1 + candidates.index(each)) ** 2, 0, 50)
    elif happened == 6:
        tokens = round(1000 * number)
        add(engine, tokens)
        known.will_be_read(known.now(), number, lambda: add(engine, -tokens))
    elif each.load.pending:
        each.load.end()


def replicas(number: int) -> list[Candidate]:
    return [
        candidate(
            f"gpu-{place}", load=Load(slots=3 * (place % 2)), priority=place % 3, wake_s=2.0 if place == 1 else 0.0
        )
        for place in range(number)
    ]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tokens", [1000, 9000])
@pytest.mark.parametrize("seed", range(10))
def test_the_costs_of_few_are_those_that_are_explained(seed: int, tokens: int, stream: bool) -> None:
    engines, crowded, lagged = tuple(replicas(4)), {"m@gpu-2": 500} if seed % 2 else {}, 0
    chance, known, clock = Random(seed), KnownEngines(), count()
    costs = EngineCosts(known, 1.0, crowded)
    known.now = lambda: next(clock) / 20
    costs.waiting = {engines[0].model: 4 * seed}
    for _ in range(200):
        random_event(chance, known, list(engines))
        cached = {each.replica: chance.randrange(1500) for each in engines if chance.random() < 0.5}
        picked = costs.pick(engines, cached, tokens, stream)
        explained = costs.explained(engines, cached, tokens, stream)
        again = [cost for cost, _ in explained]
        assert [costs.last_cost(each) for each in engines] == pytest.approx(again)
        limit = 1.05 * min(again) + 0.001
        near = [each for each, cost in zip(engines, again, strict=True) if cost <= limit]
        assert picked is min(near, key=lambda each: known.engine(each.backend).used)
        lagged += any(parts.writing for _, parts in explained)
    assert bool(lagged) is not stream


def test_among_many_each_is_made_anew_within_some_decisions() -> None:
    chance, known, engines = Random(7), KnownEngines(), replicas(30)
    costs = EngineCosts(known, 1.0)
    for _ in range(300):
        random_event(chance, known, engines)
        costs.pick(engines, {}, 1000)
    for _ in range(30):
        known.used(engines[0].backend)  # what was learned of the others counts less with each turn
    for _ in range(15):
        costs.pick(engines.copy(), {}, 1000)
    again = [cost for cost, _ in costs.explained(engines, {}, 1000)]
    assert [costs.last_cost(each) for each in engines] == pytest.approx(again)


def test_changes_that_came_between_two_decisions_are_all_known_however_many() -> None:
    known, engines = KnownEngines(), replicas(20)
    costs = EngineCosts(known, 1.0)
    costs.pick(engines, {}, 1000)
    known.engine("gpu-19").learn(5.0, 556, 0)
    for _ in range(5000):
        known.engine("gpu-2").ended(0.1)
    costs.pick(engines, {}, 1000)
    again = [cost for cost, _ in costs.explained(engines, {}, 1000)]
    assert [costs.last_cost(each) for each in engines] == pytest.approx(again)


def test_engines_that_are_gone_are_forgotten() -> None:
    known, engines = KnownEngines(), replicas(4)
    for place in range(10_000):
        known.engine(f"gone-{place}").learn(1.0, 556, 0)
        known.used(f"gone-{place}")
        for each in engines:
            known.used(each.backend)
    learned = known.learned()
    assert len(learned) <= 4096
    assert {"gone-9999", *(each.backend for each in engines)} <= learned.keys()


def test_engines_that_were_replaced_do_not_count_as_those_whose_turns_are_waited_for() -> None:
    known = KnownEngines()
    for generation in range(20):
        for turn in range(400):
            known.used(f"gpu-{generation}-{turn % 4}")
    assert len(known.learned()) <= 8


@pytest.mark.parametrize("tokens", [1000, 9000])
@pytest.mark.parametrize("number", [4, 40])
def test_the_parts_are_the_cost(number: int, tokens: int) -> None:
    known, engines = KnownEngines(), replicas(number)
    costs = EngineCosts(known, 1.0)
    known.engine("gpu-0").learn(0.2, 556, 0)
    add(known.engine("gpu-2"), 700)
    everywhere = {each.replica: 64 for each in engines}
    for cached in ({}, {"m@gpu-2": 2000}, everywhere, everywhere | {"m@gpu-1": 640, "m@gpu-3": 8000}):
        for each, (cost, parts) in zip(engines, costs.explained(engines, cached, tokens), strict=True):
            assert cost == pytest.approx(sum(parts) + each.priority)


def test_the_cost_of_one_that_was_not_asked_about_is_not_known() -> None:
    costs, engines = EngineCosts(KnownEngines(), 1.0), replicas(3)
    assert costs.last_cost(engines[0]) is None
    costs.pick(engines[:2], {}, 1000)
    assert costs.last_cost(engines[0]) is not None
    assert costs.last_cost(engines[2]) is None
