from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Candidate, Requirements, Scorer, Strategy
from enginehouse.routing_facts import WeightedScorer
from enginehouse_kit.testing import candidate, requirements
from enginehouse_routing.strategies import RoundRobin, Weighted
from tests.support.routing import make_strategy, take_pick

NEEDS = requirements()


def trio(model: str = "m") -> list[Candidate]:
    return [candidate(name, model) for name in "abc"]


def picks(strategy: Strategy, candidates: Sequence[Candidate], times: int) -> list[str]:
    return [take_pick(strategy, NEEDS, candidates).backend for _ in range(times)]


class FixedScorer(Scorer):
    """A scorer with figures of the test's choice."""

    def __init__(self, *figures: float) -> None:
        self.figures = figures

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return self.figures[: len(candidates)]


def weighted(*scorers: tuple[int, Scorer]) -> Strategy:
    strategy = Weighted()
    strategy.use([WeightedScorer(f"s{n}", weight, scorer) for n, (weight, scorer) in enumerate(scorers)])
    return strategy


@given(
    fleet=st.lists(
        st.tuples(st.integers(0, 150), st.integers(0, 150), st.floats(0, 2000), st.floats(0, 3)), min_size=1
    ),
    weights=st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(1, 100)),
)
def test_smart_picks_what_weighted_picks_with_the_same_scorers(
    fleet: list[tuple[int, int, float, float]], weights: tuple[int, int, int]
) -> None:
    batch = [
        candidate(f"b{n}", priority=priority, pending=pending, avg_latency_ms=ms, wake_s=wake)
        for n, (priority, pending, ms, wake) in enumerate(fleet)
    ]
    assert take_pick(make_strategy("smart", weights), NEEDS, batch) is take_pick(
        make_strategy("weighted", weights), NEEDS, batch
    )


# --- smart -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "score"),
    [
        ({}, 100),
        ({"priority": 1, "pending": 2, "avg_latency_ms": 50.0}, (99 * 50 + 98 * 30 + 95 * 20) // 100),
        ({"priority": 250, "pending": 500, "avg_latency_ms": 5000.0}, 0),
        ({"priority": 1}, 99),
    ],
)
def test_smart_scores_by_the_formula(fields: dict[str, Any], score: int) -> None:
    assert make_strategy("smart").explain(NEEDS, [candidate(**fields)])[0].score == score


def test_smart_prefers_the_less_loaded_backend() -> None:
    assert picks(make_strategy("smart"), [candidate("a", pending=10), candidate("b", pending=2)], 1) == ["b"]


def test_smart_prefers_the_faster_backend() -> None:
    pair = [candidate("a", avg_latency_ms=200.0), candidate("b", avg_latency_ms=50.0)]
    assert picks(make_strategy("smart"), pair, 1) == ["b"]


def test_smart_takes_the_first_of_equal_scores() -> None:
    assert picks(make_strategy("smart"), trio(), 3) == ["a", "a", "a"]
    assert picks(
        make_strategy("smart"), [candidate("a", avg_latency_ms=10.0), candidate("b", avg_latency_ms=5.0)], 1
    ) == ["b"]
    same_when_rounded_down = [candidate("a", priority=1), candidate("b", pending=1)]
    assert picks(make_strategy("smart"), same_when_rounded_down, 1) == ["a"]


def test_the_first_of_equals_is_at_most_16_requests_ahead() -> None:
    asked = picks(make_strategy("smart"), trio(), 92)
    assert asked[:32] == [*"a" * 16, *"b" * 16]
    assert Counter(asked) == {"a": 36, "b": 36, "c": 20}


def test_a_worse_priority_is_no_equal_although_the_score_is_rounded() -> None:
    smart, pair = make_strategy("smart"), [candidate("a"), candidate("b", priority=1)]
    for each in pair:
        each.load.answered(20.0)
    assert [each.score for each in smart.explain(NEEDS, pair)] == [99, 99]
    assert picks(smart, pair, 40) == ["a"] * 40


def test_an_engine_that_was_away_need_not_catch_up() -> None:
    smart, pair = make_strategy("smart"), [candidate("a"), candidate("b")]
    picks(smart, [pair[0], candidate("c", priority=50)], 1000)
    assert Counter(picks(smart, pair, 100)) == {"a": 50, "b": 50}


@pytest.mark.parametrize(("gone", "first"), [(100, "b"), (17_000, "a")])
def test_smart_forgets_replicas_that_are_gone(gone: int, first: str) -> None:
    smart, a, b, worse = make_strategy("smart"), candidate("a"), candidate("b"), candidate("c", priority=50)
    picks(smart, [a, worse], 20)
    for place in range(gone):
        take_pick(smart, NEEDS, [replace(b, replica=f"gone-{place}"), worse])
    assert picks(smart, [a, b], 1) == [first]


def test_smart_listens_to_its_weights() -> None:
    pair = [candidate("near", priority=0, pending=40), candidate("idle", priority=40, pending=0)]
    assert picks(make_strategy("smart", (100, 0, 0)), pair, 1) == ["near"]
    assert picks(make_strategy("smart", (0, 100, 0)), pair, 1) == ["idle"]


def test_smart_reads_live_figures() -> None:
    smart, pair = make_strategy("smart"), [candidate("a"), candidate("b")]
    assert picks(smart, pair, 1) == ["a"]
    for _ in range(5):
        pair[0].load.begin()
    assert picks(smart, pair, 1) == ["b"]


def test_smart_explains_its_score() -> None:
    verdict = make_strategy("smart").explain(NEEDS, [candidate(priority=10, pending=20, avg_latency_ms=300.0)])[0]
    assert verdict.parts == {"priority": 90, "load": 80, "latency": 70}
    assert verdict.score == (90 * 50 + 80 * 30 + 70 * 20) // 100


candidates = st.lists(
    st.builds(
        lambda priority, pending, ms: (priority, pending, ms),
        st.integers(0, 200),
        st.integers(0, 200),
        st.floats(0, 3000),
    ),
    min_size=1,
    max_size=8,
)
weights = st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)).filter(any)


def formula(fields: tuple[int, int, float], weight: tuple[int, int, int]) -> int:
    priority, pending, ms = fields
    parts = (100 - min(priority, 100), 100 - min(pending, 100), 100 - min(int(ms) // 10, 100))
    return sum(part * each for part, each in zip(parts, weight, strict=True)) // sum(weight)


@given(candidates, weights)
def test_smart_always_picks_the_first_of_the_highest_scores(
    fields: list[tuple[int, int, float]], weight: tuple[int, int, int]
) -> None:
    smart = make_strategy("smart", weight)
    batch = [candidate(f"b{n}", priority=p, pending=q, avg_latency_ms=ms) for n, (p, q, ms) in enumerate(fields)]
    scores = [formula(each, weight) for each in fields]
    assert [verdict.score for verdict in smart.explain(NEEDS, batch)] == scores
    assert take_pick(smart, NEEDS, batch) is batch[scores.index(max(scores))]
    assert all(0 <= score <= 100 for score in scores)


# --- weighted ----------------------------------------------------------------------------------------------------


def test_weighted_is_a_mean_of_any_scorers() -> None:
    strategy = weighted((3, FixedScorer(10, 20)), (1, FixedScorer(100, 50)))
    assert [verdict.score for verdict in strategy.explain(NEEDS, trio()[:2])] == [(30 + 100) // 4, (60 + 50) // 4]
    assert picks(strategy, trio()[:2], 1) == ["a"]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6), st.integers(1, 1000))
def test_a_score_is_always_from_0_to_100(figures: list[float], weight: int) -> None:
    batch = [candidate(f"b{n}") for n in range(len(figures))]
    verdicts = weighted((weight, FixedScorer(*figures)), (7, FixedScorer(*reversed(figures)))).explain(NEEDS, batch)
    assert all(verdict.score is not None and 0 <= verdict.score <= 100 for verdict in verdicts)


# --- round_robin -------------------------------------------------------------------------------------------------


def test_round_robin_takes_each_in_order() -> None:
    assert picks(RoundRobin(), trio(), 7) == ["a", "b", "c", "a", "b", "c", "a"]


def test_round_robin_rotates_each_model_by_itself() -> None:
    strategy = RoundRobin()
    assert picks(strategy, trio("m"), 2) == ["a", "b"]
    assert picks(strategy, trio("n"), 2) == ["a", "b"]
    assert picks(strategy, trio("m"), 1) == ["c"]


@given(st.integers(1, 12), st.integers(1, 20))
def test_round_robin_is_even_over_whole_rounds(backends: int, rounds: int) -> None:
    batch = [candidate(f"b{n}") for n in range(backends)]
    counts = Counter(picks(RoundRobin(), batch, backends * rounds))
    assert set(counts.values()) == {rounds}
    assert len(counts) == backends


@given(st.lists(st.frozensets(st.integers(0, 4), min_size=1), max_size=60))
def test_round_robin_passes_nobody_by_when_candidates_differ(needs: list[frozenset[int]]) -> None:
    strategy, everyone = RoundRobin(), [candidate(f"b{n}") for n in range(5)]
    waited: Counter[str] = Counter()
    for some in needs:
        batch = [everyone[n] for n in sorted(some)]
        chosen = take_pick(strategy, NEEDS, batch)
        waited.update(each.backend for each in batch)
        waited[chosen.backend] = 0
        assert max(waited.values()) < len(everyone)


def test_round_robin_forgets_replicas_that_are_gone() -> None:
    strategy, each = RoundRobin(), candidate("a")
    picked = [take_pick(strategy, NEEDS, [replace(each, replica=f"a-{place}")]) for place in range(17_000)]
    turns = [verdict.parts["last_turn"] for verdict in strategy.explain(NEEDS, picked)]
    assert turns == [0] * 616 + [*range(617, 17_001)]


def test_round_robin_explains_without_moving_on() -> None:
    strategy = RoundRobin()
    picks(strategy, trio(), 2)
    assert [verdict.parts for verdict in strategy.explain(NEEDS, trio())] == [
        {"last_turn": 1},
        {"last_turn": 2},
        {"last_turn": 0},
    ]
    assert picks(strategy, trio(), 1) == ["c"]


# --- priority_only and random ------------------------------------------------------------------------------------


def test_priority_only_always_takes_the_lowest_number_whatever_the_load() -> None:
    batch = [candidate("second", priority=2), candidate("first", priority=1, pending=99, avg_latency_ms=900.0)]
    assert set(picks(make_strategy("priority_only"), batch, 10)) == {"first"}


def test_priority_only_takes_the_first_of_equals() -> None:
    batch = [candidate("a", priority=2), candidate("b", priority=1), candidate("c", priority=1)]
    assert set(picks(make_strategy("priority_only"), batch, 5)) == {"b"}
    assert [verdict.parts["priority"] for verdict in make_strategy("priority_only").explain(NEEDS, batch)] == [2, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_random_is_about_even(seed: int) -> None:
    counts = Counter(picks(make_strategy("random", seed=seed), trio(), 3000))
    assert all(900 <= counts[name] <= 1100 for name in "abc")


def test_random_repeats_itself_with_a_seed() -> None:
    assert picks(make_strategy("random", seed=1), trio(), 20) == picks(make_strategy("random", seed=1), trio(), 20)
    assert picks(make_strategy("random", seed=1), trio(), 20) != picks(make_strategy("random", seed=2), trio(), 20)
