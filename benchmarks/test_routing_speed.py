"""Measures routing decisions.

Each benchmark also reports percentiles of single decisions as ``extra_info`` and on the terminal, in microseconds of
processor time, which other processes disturb less. A traced decision also records its reasons.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns, thread_time_ns

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from enginehouse import Candidate, Capabilities, Health, Requirements, Route, Strategy
from enginehouse.app.plugin_instances import identity
from enginehouse.config.routing import Aliases
from enginehouse.config.schema import CheckSettings, PluginSettings
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.routing.body.read import read_request
from enginehouse.routing.body.rewrite import replace_model
from enginehouse.routing.decision_plugins import StrategyTable
from enginehouse.routing.router import Router
from enginehouse.routing_facts import Placement, WeightedScorer

ABLE = Capabilities(context_length=32768, vision=False, tools=True, json_mode=True)
CHAT = json.dumps(
    {
        "model": "model-7",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}],
        "temperature": 0.2,
    }
).encode()
LONG_BEGINNING = "You are a helpful assistant. " * 100
LONG_END = " Why is the sky blue?" * 52
DEMANDING = Requirements(model="model-7", estimated_tokens=900, needs_tools=True, needs_json_mode=True)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Collect garbage as seldom as ``enginehouse serve`` does."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def build_router(strategy: str, made: Strategy | None = None) -> Router:
    registry = load_plugins(PluginSettings()).registry
    made = made or registry.create("strategy", strategy)
    weights = {"priority": 50, "load": 30, "latency": 20}
    made.use([WeightedScorer(name, weight, registry.create("scorer", name)) for name, weight in weights.items()])
    return Router(
        [
            (identity(registry, "extractor", name), registry.create("extractor", name))
            for name in registry.types("extractor")
        ],
        [
            (identity(registry, "filter", name), registry.create("filter", name))
            for name in registry.types("filter")
            if name != "error_share"  # it is off by default
        ],
        StrategyTable((identity(registry, "strategy", strategy), made), {}, {}),
        Aliases({}),
        {},
    )


def build_fleet(backends: int, models: int, backends_per_model: int) -> Fleet:
    """Backends under various load; model n is served by the backends n, n + 1 and so on."""
    fleet = Fleet(CheckSettings(), lambda: 0.0)
    for number in range(backends):
        served = {f"model-{model}": ABLE for model in range(models) if (number - model) % backends < backends_per_model}
        name = f"gpu-{number}"
        fleet.add(BackendInfo(name=name, url="", priority=number % 3, models=served, health=Health.HEALTHY))
        fleet.load(name).pending = number * 7 % 13
        fleet.load(name).answered(20.0 + number * 31 % 170)
    return fleet


class Traffic:
    """Requests that begin alike: the answer to each changes what ``cache_aware`` knows before the next one comes.

    The first token comes from each engine after its average latency.
    """

    def __init__(self, router: Router, strategy: Strategy, fleet: Fleet) -> None:
        self.now = 0.0
        self._router = router
        self._snapshot = fleet.snapshot
        self._number = 0
        self._last: Route | None = None
        [self._extractor] = strategy.extractors()
        strategy.start(lambda: self.now)
        for each in self._snapshot.candidates("model-7"):  # all of them have answered
            self._answer(strategy.placed(self.asks(), each), each)

    def asks(self) -> Requirements:
        """The requirements of the next request, after the answer to the one before."""
        if self._last is not None:
            self._answer(self._last.placement, self._last.chosen)
        self._number += 1
        body = {"model": "model-7", "prompt": f"{LONG_BEGINNING}{self._number}{LONG_END}"}
        needs = Requirements(model="model-7", estimated_tokens=1000)
        self._extractor.extract(read_request("/v1/completions", [], json.dumps(body).encode()), needs)
        return needs

    def decide(self, needs: Requirements, traced_at: float | None) -> None:
        self._last = self._router.choose(needs, self._snapshot, traced_at=traced_at)
        self._router.carry_out(needs, self._last)

    def _answer(self, placement: Placement | None, engine: Candidate) -> None:
        assert placement is not None
        engine.load.begin()
        placement.queued()
        placement.granted()
        self.now += engine.load.avg_latency_ms / 1000
        placement.first_byte()
        engine.load.end()
        placement.ended()


def measure(benchmark: BenchmarkFixture, decide: Callable[[], object], note: str, rounds: int = 20_000) -> None:
    """Time ``decide`` with the benchmark, and call by call for the percentiles."""
    for _ in range(200):
        timed(decide)
    report(benchmark, sorted(timed(decide) for _ in range(rounds)), note)
    benchmark(decide)


def timed(call: Callable[..., object], *args: object) -> int:
    """The processor time of a call, in nanoseconds."""
    start = thread_time_ns()
    call(*args)
    return thread_time_ns() - start


def report(benchmark: BenchmarkFixture, times: Sequence[int], note: str) -> None:
    """Show percentiles of sorted ``times``."""
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        benchmark.extra_info[f"{name} µs"] = times[int(len(times) * share)] / 1000
    figures = ", ".join(f"{name} {value:.1f}" for name, value in benchmark.extra_info.items())
    print(f"\n{note}: {figures}")


STRATEGIES = [("smart", True), *((name, False) for name in ("smart", "round_robin", "priority_only", "random"))]


@pytest.mark.parametrize(("strategy", "traced"), STRATEGIES)
@pytest.mark.parametrize("backends_per_model", [10, 100])
def test_decision_with_100_backends_and_1000_models(
    benchmark: BenchmarkFixture, strategy: str, traced: bool, backends_per_model: int
) -> None:
    router, snapshot = build_router(strategy), build_fleet(100, 1000, backends_per_model).snapshot
    assert len(snapshot.candidates("model-7")) == backends_per_model
    note = f"{strategy}{', traced' * traced}, 100 backends x 1000 models, {backends_per_model} candidates"
    measure(benchmark, lambda: router.choose(DEMANDING, snapshot, traced_at=0.0 if traced else None), note)


@pytest.mark.parametrize(("strategy", "traced"), STRATEGIES)
def test_decision_among_1000_candidates(benchmark: BenchmarkFixture, strategy: str, traced: bool) -> None:
    router, snapshot = build_router(strategy), build_fleet(1000, 10, 1000).snapshot
    assert len(snapshot.candidates("model-7")) == 1000
    note = f"{strategy}{', traced' * traced}, 1000 candidates"
    measure(benchmark, lambda: router.choose(DEMANDING, snapshot, traced_at=0.0 if traced else None), note, 3000)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(("candidates", "rounds"), [(10, 10_000), (100, 10_000), (1000, 2000)])
def test_cache_aware_decision(benchmark: BenchmarkFixture, candidates: int, rounds: int, traced: bool) -> None:
    """A prompt of 4,000 characters is cut into chunks, looked up, placed and noted."""
    registry = load_plugins(PluginSettings()).registry
    strategy = registry.create("strategy", "cache_aware")
    traffic = Traffic(build_router("cache_aware", strategy), strategy, build_fleet(candidates, 10, candidates))
    traced_at = 0.0 if traced else None
    times = [timed(traffic.decide, traffic.asks(), traced_at) for _ in range(rounds)]
    report(benchmark, sorted(times), f"cache_aware{', traced' * traced}, {candidates} candidates")
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        traffic.decide, setup=lambda: ((traffic.asks(), traced_at), {}), rounds=100
    )


def test_from_bytes_to_route_with_3_candidates(benchmark: BenchmarkFixture) -> None:
    router, snapshot = build_router("smart"), build_fleet(3, 10, 3).snapshot
    request = read_request("/v1/chat/completions", [], CHAT)
    required = router.requirements(request)

    def whole() -> object:
        return router.choose(router.requirements(read_request("/v1/chat/completions", [], CHAT)), snapshot)

    split: Sequence[tuple[str, Callable[[], object]]] = (
        ("read", lambda: read_request("/v1/chat/completions", [], CHAT)),
        ("requirements", lambda: router.requirements(request)),
        ("route", lambda: router.choose(required, snapshot)),
    )
    for name, part in split:
        benchmark.extra_info[f"{name} µs"] = microseconds(part)
    measure(benchmark, whole, "smart, from bytes to route, 3 candidates")


def microseconds(part: Callable[[], object], times: int = 20_000) -> float:
    gc.collect()
    best = float("inf")
    for _ in range(5):
        start = perf_counter_ns()
        for _ in range(times):
            part()
        best = min(best, (perf_counter_ns() - start) / times)
    return best / 1000


def test_another_model_name_in_a_small_body(benchmark: BenchmarkFixture) -> None:
    benchmark(replace_model, CHAT, "llama3:8b")


def test_two_changes_of_one_of_100_backends_with_1000_models_each(benchmark: BenchmarkFixture) -> None:
    fleet = build_fleet(100, 1000, 100)

    def change() -> None:
        fleet.drain("gpu-50")
        fleet.undrain("gpu-50")

    benchmark(change)
