"""Requests that load, and hold blocks meanwhile, never keep each other from running for good."""

from __future__ import annotations

from random import Random

import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.core.build import build_core
from tests.simulator.differential.drive import MAX_STEPS, drive
from tests.simulator.differential.our_engine import OurEngine
from tests.simulator.differential.setups import make_workload
from tests.support.asked import new_state

LONGEST_WAIT = 3000
"""Steps without any token, of a millisecond each; the slowest load takes a third of it."""
seeds = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(50, 300, 50))]
)


@seeds
def test_requests_in_host_memory_come_back(seed: int) -> None:
    for number in range(seed, seed + 50):
        restore_all(number)


@seeds
def test_requests_that_load_are_served(seed: int) -> None:
    for number in range(seed, seed + 50):
        load_all(number)


def test_a_request_that_starts_again_and_again_leaves_time_for_the_load_that_blocks_it() -> None:
    restore_all(1298)


def test_requests_that_hold_each_others_blocks_do_not_wait_for_good() -> None:
    """vLLM's scheduler does, in this workload."""
    load_all(12683)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(300, 100_300, 10_000))
def test_a_hundred_thousand_workloads_end(seed: int) -> None:
    for number in range(seed, seed + 5000):
        restore_all(number)
        load_all(number)


def restore_all(seed: int) -> None:
    """Serve random requests with little device memory, and host memory behind a slow link."""
    random = Random(seed)
    blocks = random.randint(14, 24)
    constants = SchedulerConstants(
        block_size=4,
        total_gpu_blocks=blocks,
        max_model_len=48,
        max_num_seqs=random.randint(2, 6),
        max_num_batched_tokens=random.randint(8, 48),
        policy=random.choice(list(SchedulingPolicy)),
        reserve_full_sequence=random.random() < 0.7,
        watermark=random.choice([0.0, 0.0, 0.1]),
        enable_prefix_caching=random.random() < 0.7,
    )
    bandwidth = random.choice([1e7, 1e8, 1e9])
    core = build_core(CoreSettings(constants=constants, host_blocks=random.randint(6, 60), host_bandwidth=bandwidth))
    for number in range(random.randint(2, 10)):
        prompt = [random.randint(65, 67) for _ in range(random.randint(1, 24))]
        core.scheduler.add_request(
            new_state(
                request_id=f"r{number}",
                prompt_token_ids=prompt,
                max_tokens=random.randint(1, 24),
                priority=random.randint(0, 2),
                arrival_time=float(random.randint(0, 3)),
            )
        )
    waited = 0
    while core.has_work:
        waited = 0 if core.step().scheduled.num_scheduled_tokens else waited + 1
        assert waited < LONGEST_WAIT, f"workload {seed}: nothing runs any more"
    assert core.scheduler.state.kv_cache.num_free_blocks == blocks - 1


def load_all(seed: int) -> None:
    """Serve random requests whose prompts come over a slow connector, in a tight pool."""
    workload = make_workload("connector, loads between steps, tight pool", seed)
    for item in workload.items:
        item.load_steps *= 1 + seed % 5
    assert len(drive(workload, OurEngine(workload))) < MAX_STEPS, f"workload {seed}: requests are left"
