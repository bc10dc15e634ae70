from __future__ import annotations

import random

import pytest

from enginehouse_sim.simulator.calibration.calibrate import calibrated
from enginehouse_sim.simulator.calibration.fit import (
    Fitted,
    Kind,
    Observation,
    StepWork,
    errors,
    fit,
    held_out,
    prompt_work,
    spread,
)
from enginehouse_sim.simulator.steps.costs import PassCosts
from enginehouse_sim.simulator.steps.profile import EngineLimits

CPU = PassCosts(
    fixed_ms=2.04,
    token_ms=0.018,
    pair_ms=2.6e-5,
    kv_token_ms=2.8e-4,
    sequence_ms=0.054,
    prompt_ms=0.96,
    waiting_ms=0.05,
)
"""A real vLLM on a CPU with a tiny model."""
GPU = PassCosts(weights_ms=5.6, token_ms=0.028, pair_ms=1e-6, kv_token_ms=5e-5, sequence_ms=0.02)
"""An engine whose small batches take as long as reading the weights."""


def observed(
    costs: PassCosts, request_ms: float, noise: float = 0.0, repeats: int = 3, outliers: float = 0.0
) -> list[Observation]:
    """What an engine with these costs shows. The noise is skewed, with mean 1; ``outliers`` take 5 times as long."""
    chance = random.Random(1)
    works: list[tuple[Kind, list[StepWork], int]] = [
        ("prompt", [prompt_work(tokens)], 1) for tokens in (16, 36, 80, 180, 400, 900, 1900, 4000)
    ]
    for decodes in (1, 4, 16, 32, 64):
        for context in (32, 1300, 2600):
            decode = StepWork(decodes=decodes, kv_tokens=decodes * context)
            works.append(("decode", [decode], 0))
            for tokens in (64, 700):
                mixed = StepWork(
                    passes=3,
                    prompt_tokens=tokens,
                    pairs=tokens * (tokens + 1) / 2,
                    first_tokens=1,
                    decodes=decodes,
                    kv_tokens=decodes * context,
                )
                works.append(("mixed", [mixed, StepWork(passes=2, decodes=decodes, kv_tokens=decodes * context)], 0))
        works.append(("waiting", [StepWork(decodes=decodes, kv_tokens=decodes * 32, waiting=32 - decodes / 4)], 0))
    found = []
    for point, (kind, work, requests) in enumerate(works):
        for _ in range(repeats):
            exact = Observation(point=str(point), kind=kind, work=work, requests=requests, ms=1.0)
            ms = exact.predicted(Fitted(costs=costs, request_ms=request_ms)) * (
                1 - noise + chance.expovariate(1 / noise) if noise else 1
            )
            ms *= 5 if chance.random() < outliers else 1
            found.append(Observation(point=str(point), kind=kind, work=work, requests=requests, ms=ms))
    return found


@pytest.mark.parametrize("costs", [CPU, GPU])
def test_known_costs_are_recovered(costs: PassCosts) -> None:
    fitted = fit(observed(costs, request_ms=3.0))
    for name in ("token_ms", "pair_ms", "kv_token_ms", "sequence_ms", "prompt_ms", "waiting_ms"):
        assert getattr(fitted.costs, name) == pytest.approx(getattr(costs, name), rel=0.05, abs=1e-4), name
    found, given = fitted.costs, costs  # no point tells the fixed cost from the weights, only their sum
    assert found.fixed_ms + found.weights_ms == pytest.approx(given.fixed_ms + given.weights_ms, rel=0.05)
    assert fitted.request_ms == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize("costs", [CPU, GPU])
def test_noise_leaves_predictions_of_every_kind_within_a_few_percent(costs: PassCosts) -> None:
    """The mean is what is fitted: the median of the noise is 3 % below it."""
    fitted = fit(observed(costs, request_ms=3.0, noise=0.1, repeats=30))
    for kind, found in errors(fitted, observed(costs, request_ms=3.0)).items():
        assert found.median < 0.08, kind
        assert abs(found.sum) < 0.05, kind


def test_a_few_outliers_do_not_matter() -> None:
    fitted = fit(observed(CPU, request_ms=3.0, noise=0.05, outliers=0.04))
    assert all(found.median < 0.10 for found in errors(fitted, observed(CPU, request_ms=3.0)).values())


def test_points_that_are_held_out_tell_the_error() -> None:
    assert all(found.median < 0.01 for found in held_out(observed(CPU, request_ms=3.0)).values())
    assert max(found.median for found in held_out(observed(CPU, request_ms=3.0, noise=0.6)).values()) > 0.1


def test_repeats_that_disagree_are_apart() -> None:
    assert spread(observed(CPU, request_ms=3.0)) == 0
    assert spread(observed(CPU, request_ms=3.0, noise=0.5)) > 0.5


@pytest.mark.parametrize(("noise", "verdict"), [(0.0, "usable"), (0.25, "unsure")])
def test_the_verdict_says_when_the_fit_cannot_be_trusted(noise: float, verdict: str) -> None:
    found = calibrated(observed(CPU, request_ms=3.0, noise=noise, repeats=8), "engine", EngineLimits(), "test")
    assert found.verdict == verdict
    assert bool(found.why) == (verdict != "usable")
    assert found.profile.outside.request_ms > 0
    assert found.profile.accuracy is not None
    assert found.profile.accuracy.margin is not None


def test_an_engine_that_does_not_behave_like_one_is_unusable() -> None:
    chance = random.Random(2)
    times = [
        Observation(point=each.point, kind=each.kind, work=each.work, requests=each.requests, ms=chance.uniform(1, 500))
        for each in observed(CPU, request_ms=3.0)
    ]
    assert calibrated(times, "engine", EngineLimits(), "test").verdict == "unusable"
