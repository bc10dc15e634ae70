from __future__ import annotations

import pytest

from enginehouse_sim.simulator.calibration.calibrate import calibrated
from enginehouse_sim.simulator.calibration.fit import Fitted, Observation, StepWork, prefix_cache, prompt_work
from enginehouse_sim.simulator.calibration.prober import ProbeBounds, probes_of
from enginehouse_sim.simulator.calibration.streams import body_for
from enginehouse_sim.simulator.steps.costs import PassCosts
from enginehouse_sim.simulator.steps.profile import EngineLimits

COSTS = PassCosts(fixed_ms=2.0, token_ms=0.1)


def known(ms: float, tokens: int = 400, cached: int = 350) -> Observation:
    work, whole = [prompt_work(tokens - cached, cached)], [prompt_work(tokens)]
    return Observation(point="known", kind="cached", work=work, requests=1, ms=ms, uncached=whole)


@pytest.mark.parametrize(("ms", "works"), [((7.5, 8.2, 90.0), True), ((41.0, 44.0, 39.0), False)])
def test_the_time_tells_whether_the_engine_took_a_prefix_from_its_cache(ms: tuple[float, ...], works: bool) -> None:
    found = prefix_cache([known(each) for each in ms], Fitted(costs=COSTS, request_ms=1.0))
    assert found is not None
    assert (found.works, round(found.rest_ms, 2), round(found.whole_ms, 2)) == (works, 8.0, 43.0)
    assert abs(found.error) < 0.06


def test_too_short_a_prompt_tells_nothing() -> None:
    found = prefix_cache([known(3.0, tokens=10, cached=8)], Fitted(costs=COSTS, request_ms=1.0))
    assert found is not None
    assert found.works is None


def test_the_profile_says_whether_prefixes_are_cached_and_the_costs_do_not_depend_on_it() -> None:
    sizes = [16 * n for n in range(1, 13)]
    decodes = [StepWork(passes=20, decodes=n, kv_tokens=n * 64) for n in (1, 2, 4, 8, 12, 16)]
    plain = [
        Observation(
            point=f"p{n}", kind="prompt", work=[work := prompt_work(n)], requests=1, ms=work.milliseconds(COSTS)
        )
        for n in sizes
    ]
    plain += [
        Observation(point=f"d{work.decodes}", kind="decode", work=[work], ms=work.milliseconds(COSTS))
        for work in decodes
    ]
    for extra, works in (([], None), ([known(8.0)], True), ([known(43.0)], False)):
        found = calibrated([*plain, *extra], "m", EngineLimits(max_num_seqs=4), "probes")
        assert found.profile.limits == EngineLimits(max_num_seqs=4, enable_prefix_caching=works)
        assert found.profile.costs.token_ms == pytest.approx(0.1, rel=0.02)


def test_one_probe_asks_again_and_llama_server_may_cache_only_there() -> None:
    probe = next(each for each in probes_of(EngineLimits(), ProbeBounds(prompt=4096)) if each.cached)
    assert (probe.context, probe.cached, probe.requests, probe.tokens) == (4096, 3584, 4, 5124)
    assert body_for("llamacpp", [1], 1)["cache_prompt"] is False
    assert "cache_prompt" not in body_for("llamacpp", [1], 1, caches=True)
