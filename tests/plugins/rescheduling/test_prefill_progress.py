"""What a prefill instance has probably computed since it reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Role
from enginehouse_kit.rescheduling import ClusterView
from enginehouse_rescheduling.prefill_progress import PrefillProgress, fit
from tests.plugins.rescheduling.test_strategies import ABC, SETTINGS, asks, strategy
from tests.support.cluster_views import NOW_MS, instance, view


def step(number: int, tokens: int, duration: float, role: Role = Role.PREFILL) -> ClusterView:
    figures = {"step_id": number, "num_scheduled_prefill_tokens": tokens, "step_duration": duration}
    return view(instance("a", role=role, **figures))


def taught(duration: Any = lambda tokens: tokens / 10, samples: int = 20) -> PrefillProgress:
    """Steps of 100, 200, 300 ... tokens: by default 10 tokens in a millisecond."""
    progress = PrefillProgress(20)
    for number in range(1, samples + 1):
        progress.learn(step(number, 100 * number, duration(100 * number)))
    return progress


def computed(progress: PrefillProgress, waiting: int, most: int, elapsed: int, running: int = 0, **more: Any) -> int:
    fields: dict[str, Any] = {"role": Role.PREFILL, "max_num_batched_tokens": most, **more}
    figures = {
        "num_uncomputed_tokens_all_waiting_prefills": waiting,
        "num_uncomputed_tokens_scheduler_running_prefills": running,
        "timestamp_ms": NOW_MS - elapsed,
    }
    return progress.computed(instance("a", **fields, **figures), NOW_MS)


@pytest.mark.parametrize(
    ("elapsed", "tokens", "most", "expected"),
    [(50, 1000, 1000, 500), (50, 2000, 500, 500), (75, 2000, 500, 750), (1000, 2000, 500, 2000), (50, 2000, 0, 500)],
)
def test_steps_since_the_report_are_counted(elapsed: int, tokens: int, most: int, expected: int) -> None:
    """The first two are those that Llumnix computes and then discards."""
    assert computed(taught(), tokens, most, elapsed) == expected


def test_a_prompt_that_has_begun_is_finished_in_a_step_of_its_own() -> None:
    """Steps take 10 ms and a token a tenth of one, so that their number counts."""
    progress = taught(lambda tokens: 10 + tokens / 10)
    assert computed(progress, 900, 500, elapsed=30, running=100) == 100 + round(500 * 10 / 60)
    assert computed(progress, 500, 500, elapsed=30, running=500) == round(500 * 30 / 60)


def test_nothing_is_predicted_before_enough_steps_were_seen() -> None:
    assert computed(taught(samples=19), 1000, 500, 50) == 0


def test_a_step_counts_once() -> None:
    progress = PrefillProgress(2)
    for _ in range(5):
        progress.learn(step(1, 100, 10))
    assert computed(progress, 1000, 500, 50) == 0


@pytest.mark.parametrize(("tokens", "duration"), [(0, 10.0), (100, 0.0), (100, 2e6), (100, float("nan"))])
def test_steps_without_prompts_or_without_a_sensible_duration_are_no_samples(tokens: int, duration: float) -> None:
    progress = PrefillProgress(1)
    progress.learn(step(1, tokens, duration))
    assert computed(progress, 1000, 500, 50) == 0


def test_only_prefill_instances_count() -> None:
    progress = PrefillProgress(1)
    progress.learn(step(1, 100, 10, Role.NEUTRAL))
    assert computed(progress, 1000, 500, 50) == 0
    assert computed(taught(), 1000, 500, 50, role=Role.NEUTRAL) == 0


def test_a_duration_that_makes_no_sense_ends_the_prediction() -> None:
    assert computed(taught(lambda tokens: 210 - tokens / 10), 2200, 2200, 50) == 0


def test_the_strategy_subtracts_what_was_computed() -> None:
    made = strategy("llumnix_load", predict_progress=True, progress_samples=2)
    for number in (1, 2):
        made.on_view(step(number, 100 * number, 10.0 * number), SETTINGS)
    since = {"timestamp_ms": NOW_MS - 50, "num_uncomputed_tokens_all_waiting_prefills": 1000}
    made.on_view(view(instance("a", role=Role.PREFILL, **since)), SETTINGS)
    assert made.explain(asks(), ABC[:1])[0].parts == {"load": 500}


@given(
    factors=st.tuples(st.floats(0, 1), st.floats(0, 5), st.floats(-3, 3)),
    xs=st.lists(st.integers(-20, 20), min_size=3, max_size=30, unique=True),
)
def test_points_on_a_parabola_give_it_back(factors: tuple[float, float, float], xs: list[int]) -> None:
    def parabola(x: float) -> float:
        return factors[0] + factors[1] * x + factors[2] * x * x

    found = fit([(x, parabola(x)) for x in xs])
    assert all(abs(found(x) - parabola(x)) < 1e-6 for x in xs)


def test_too_few_or_equal_points_give_a_line_or_the_mean() -> None:
    assert fit([(1, 10.0), (3, 20.0)])(2) == pytest.approx(15)
    assert fit([(5, 10.0), (5, 20.0)])(9) == 15
    assert fit([(5, 10.0)])(9) == 10


def test_points_so_close_that_a_parabola_would_be_noise_give_a_line() -> None:
    points = [(60_000 + x, float(x)) for x in range(3)]
    assert fit(points)(60_001) == pytest.approx(1, abs=0.01)
    assert fit(points)(120_000) == pytest.approx(60_000, rel=0.01)


def test_it_fits_as_well_as_any_other_function_of_its_kind() -> None:
    points = [(1.0, 2.0), (2.0, 3.9), (3.0, 6.1), (4.0, 8.4), (5.0, 10.0)]
    found = fit(points)

    def squares(change: float) -> float:
        return sum((found(x) + change * x - y) ** 2 for x, y in points)

    assert squares(0) < min(squares(0.01), squares(-0.01))
