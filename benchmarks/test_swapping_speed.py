"""Measures decisions of the matrix swapper."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from enginehouse import Swapper
from enginehouse.tickets import HostedReplica, HostFacts
from enginehouse_kit.testing import create

APART = [[f"model-{part}-{each}" for each in range(10)] for part in range(6)]
POOL = [f"model-{each}" for each in range(10)]


def build(expression: str, models: list[str]) -> Swapper:
    made: Swapper = create("swapper", "matrix", {"sets": {"large": expression}})
    replicas = {model: HostedReplica(replica=model, model=model) for model in models}
    made.prepare(HostFacts(name="local", replicas=replicas))
    return made


def one_of(models: list[str]) -> str:
    return f"({' | '.join(models)})"


@pytest.mark.parametrize("outside", [[], ["outside"]])
def test_a_million_combinations_of_parts_that_share_nothing(benchmark: BenchmarkFixture, outside: list[str]) -> None:
    models = ["target", "outside", *(model for part in APART for model in part)]
    it = build(" & ".join(["target", *map(one_of, APART)]), models)
    running = [*(part[9] for part in APART), *outside]

    assert benchmark(it.eviction_for, "target", running) == outside


def test_a_million_combinations_of_the_same_models(benchmark: BenchmarkFixture) -> None:
    """Any 6 of 10 models: every part can have every model, so none can be chosen by itself."""
    it = build(" & ".join([one_of(POOL)] * 6), POOL)

    assert len(benchmark(it.eviction_for, POOL[9], POOL[:6])) == 1


def test_a_hundred_sets(benchmark: BenchmarkFixture) -> None:
    models = ["target", *(model for part in APART for model in part)]
    sets = {f"set-{number}": " & ".join(["target", *map(one_of, APART)]) for number in range(100)}
    made: Swapper = create("swapper", "matrix", {"sets": sets})
    replicas = {model: HostedReplica(replica=model, model=model) for model in models}
    made.prepare(HostFacts(name="local", replicas=replicas))

    assert benchmark(made.eviction_for, "target", [part[9] for part in APART]) == []
