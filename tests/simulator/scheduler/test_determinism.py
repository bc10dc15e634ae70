from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

import msgspec
import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.asked import EngineCoreRequest, MultiModalInput
from enginehouse_sim.simulator.domain.request import RequestState, fields_of
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.model.runner import ModelRunner
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.steps.models import ConstantSteps

SEEDS = ("0", "1", "4711")


def digest(seed: int) -> str:
    """All steps and all outputs of a run with preemptions, drafts, images, adapters and shared beginnings."""
    dice = random.Random(seed)
    constants = SchedulerConstants(
        block_size=4,
        total_gpu_blocks=40,
        max_model_len=100,
        max_num_seqs=8,
        max_num_batched_tokens=40,
        policy=SchedulingPolicy.PRIORITY,
        num_spec_tokens=2,
        max_loras=2,
        encoder_cache_size=20,
    )
    runner = ModelRunner(CoreSettings(constants=SchedulerConstants(num_spec_tokens=2), seed=seed))
    core = EngineCore(BatchScheduler(constants, KvCacheManager(constants)), runner, ConstantSteps(0.1, 0.01))
    for number in range(30):
        prompt = [
            *range(300, 300 + dice.randint(1, 30)),
            *(dice.randint(1000, 2000) for _ in range(dice.randint(1, 9))),
        ]
        core.scheduler.add_request(
            RequestState(
                EngineCoreRequest(
                    request_id=f"request-{number}",
                    prompt_token_ids=prompt,
                    max_tokens=dice.randint(1, 30),
                    priority=dice.randint(0, 2),
                    arrival_time=float(number),
                    lora=dice.choice([None, "x", "y", "z"]),
                    mm_inputs=[MultiModalInput(f"image-{number % 4}", 0, len(prompt) // 2)] if number % 5 == 0 else (),
                )
            )
        )
    log = hashlib.sha256()
    preemptions = 0
    while core.has_work:
        result = core.step()
        preemptions += len(result.scheduled.preempted_req_ids)
        log.update(msgspec.msgpack.encode((result.scheduled, list(result.outputs), result.seconds), enc_hook=fields_of))
    assert preemptions > 3
    return log.hexdigest()


def test_the_same_run_gives_the_same_steps_byte_for_byte() -> None:
    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


@pytest.mark.parametrize("hash_seed", SEEDS)
def test_steps_do_not_depend_on_how_python_hashes_strings(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.strip() == digest(1)


if __name__ == "__main__":
    print(digest(1))
