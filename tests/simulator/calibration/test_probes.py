from __future__ import annotations

import pytest

from enginehouse_sim.simulator.calibration.prober import ProbeBounds, bounds_of, in_random_order, probes_of
from enginehouse_sim.simulator.steps.profile import EngineLimits

WANTED = ProbeBounds(streams=32, prompt=4096)


def test_the_probes_cover_prompts_batches_and_contexts() -> None:
    probes = probes_of(EngineLimits(), WANTED)
    alone = [probe.context for probe in probes if not probe.streams and not probe.cached]
    assert (len(alone), alone[0], alone[-1]) == (8, 16, 4096)
    assert {probe.streams for probe in probes if probe.streams} == {1, 2, 4, 16, 32}
    assert {probe.context for probe in probes if probe.streams} == {32, 1365, 2730}
    assert all(probe.beside for probe in probes if probe.streams)


@pytest.mark.parametrize(
    ("limits", "streams", "prompt"),
    [
        (EngineLimits(), 32, 4096),
        (EngineLimits(max_num_seqs=8), 8, 4096),
        (EngineLimits(max_model_len=1500), 32, 1000),
        (EngineLimits(max_num_batched_tokens=512), 32, 512),
        (EngineLimits(max_num_seqs=1), 1, 4096),
    ],
)
def test_the_limits_of_the_engine_bound_the_probes(limits: EngineLimits, streams: int, prompt: int) -> None:
    assert bounds_of(limits, WANTED) == ProbeBounds(streams=streams, prompt=prompt)


@pytest.mark.parametrize("most", [1, 4])
def test_no_prompt_is_read_beside_as_many_streams_as_the_engine_serves(most: int) -> None:
    limits = EngineLimits(max_num_seqs=most)
    probes = [probe for probe in probes_of(limits, bounds_of(limits, WANTED)) if probe.streams]
    assert {probe.streams for probe in probes if probe.beside} == set(range(1, most))
    assert most in {probe.streams for probe in probes}


def test_requests_wait_only_at_an_engine_whose_places_the_probes_fill() -> None:
    limits = EngineLimits(max_num_seqs=4)
    waits = [probe for probe in probes_of(limits, bounds_of(limits, WANTED)) if probe.waiting]
    assert [(probe.streams, probe.waiting, probe.requests) for probe in waits] == [(4, 8, 12), (4, 16, 20), (4, 32, 36)]
    assert not any(probe.waiting for probe in probes_of(EngineLimits(max_num_seqs=256), WANTED))


def test_streams_that_do_not_fit_into_the_cache_are_left_out() -> None:
    probes = probes_of(EngineLimits(block_size=16, total_gpu_blocks=1000), WANTED)
    assert max(probe.streams * probe.context for probe in probes) < 16_000


def test_every_round_has_all_probes_in_another_order() -> None:
    probes = probes_of(EngineLimits(), WANTED)
    order = list(in_random_order(probes))
    first, second = ([probe for repeat, probe in order if repeat == number] for number in (0, 1))
    assert first != second
    assert sorted(first, key=str) == sorted(second, key=str) == sorted(probes, key=str)
