"""What is known of steady steps before they are made."""

from __future__ import annotations

import pytest

from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.scheduler.running import usage_after
from tests.support.asked import new_state


def decoding(number: int) -> EngineCore:
    """A core in which ``number`` requests decode, each at another place of its last block."""
    core = build_core(CoreSettings(profile="polynomial"), makes_text=False)
    for n in range(number):
        core.scheduler.add_request(new_state(request_id=str(n), prompt_token_ids=[0] * (20 + 3 * n), max_tokens=100))
    core.step()
    core.begin_step()
    return core


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
def test_the_blocks_that_steady_steps_will_take_are_known_before(count: int) -> None:
    core = decoding(5)
    assert len(core.foresee()) > count
    state = core.scheduler.state
    before, expected = state.kv_cache.usage, usage_after(state, count)

    core.pass_steps(count)

    assert state.kv_cache.usage == expected >= before
