from __future__ import annotations

from typing import Any

import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.request import RequestState
from tests.support.asked import new_state


def request(name: str, prompt: int, max_tokens: int = 4, priority: int = 0) -> RequestState:
    tokens = [1000 * ord(name) + at for at in range(prompt)]
    return new_state(
        request_id=name, prompt_token_ids=tokens, max_tokens=max_tokens, priority=priority, ignore_eos=True
    )


def core_with(policy: SchedulingPolicy, **limits: Any) -> EngineCore:
    constants = SchedulerConstants(async_scheduling=False, block_size=4, policy=policy, **limits)
    return build_core(CoreSettings(constants=constants), makes_text=False)


def admitted(core: EngineCore) -> list[str]:
    """The requests in the order of their admission."""
    names: list[str] = []
    while core.has_work:
        names += [new.request_id for new in core.step().scheduled.new_requests]
    return names


@pytest.mark.parametrize(("policy", "order"), [("fcfs", "abcd"), ("priority", "cabd")])
def test_a_policy_orders_the_waiting_requests(policy: str, order: str) -> None:
    core = core_with(SchedulingPolicy(policy), max_num_seqs=1)
    for name, priority in (("a", 0), ("b", 0), ("c", -1), ("d", 5)):
        core.scheduler.add_request(request(name, 10, priority=priority))
    assert "".join(admitted(core)) == order


@pytest.mark.parametrize(("policy", "victim"), [("fcfs", "b"), ("priority", "a")])
def test_a_policy_chooses_the_victim(policy: str, victim: str) -> None:
    core = core_with(SchedulingPolicy(policy), total_gpu_blocks=9)
    for name, priority in (("a", 1), ("b", 0)):
        core.scheduler.add_request(request(name, 12, max_tokens=14, priority=priority))
    preempted: list[str] = []
    while core.has_work and not preempted:
        preempted += core.step().scheduled.preempted_req_ids
    assert preempted == [victim]
