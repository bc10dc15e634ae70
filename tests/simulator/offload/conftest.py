from __future__ import annotations

from typing import Any

import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.build import build_core
from tests.support.core_engine import NewEngine, StepByStepEngine


@pytest.fixture
def engine() -> NewEngine:
    """An engine with so many device blocks (to use) and host blocks."""

    def new(blocks: int, host_blocks: int = 1000, async_scheduling: bool = True, **settings: Any) -> StepByStepEngine:
        constants = SchedulerConstants(
            block_size=4,
            total_gpu_blocks=blocks + 1,
            max_num_batched_tokens=100,
            max_num_seqs=10,
            max_model_len=400,
            async_scheduling=async_scheduling,
        )
        steps = {"ttft": 1.0, "tpot": 1.0}
        return StepByStepEngine(
            build_core(CoreSettings(constants=constants, host_blocks=host_blocks, **{**steps, **settings}))
        )

    return new
