from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enginehouse import CachedBlock, EnginehouseError, EnginePolicy, EngineRequest, EngineStep, VirtualSettings
from enginehouse.testing import check_engine_policy, create
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.domain.constants import SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.domain.moved_request import MovedRequest
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_pool import BlockPool
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest
from tests.support.plugins import Install


class ShortestFirst(EnginePolicy):
    def order(self, request: EngineRequest) -> Any:
        return request.num_prompt_tokens


class FirstIsVictim(EnginePolicy):
    def victim(self, running: Sequence[EngineRequest]) -> int:
        return 0


class Twice(EnginePolicy):
    def seconds(self, step: EngineStep, seconds: float) -> float:
        return 2 * seconds


class LeastUsed(EnginePolicy):
    def evict(self, blocks: Sequence[CachedBlock]) -> int:
        return min(range(len(blocks)), key=lambda at: blocks[at].uses)


@pytest.mark.parametrize("type", ["fcfs", "priority"])
def test_the_bundled_policies_keep_the_rules(type: str) -> None:
    check_engine_policy(lambda: create("engine_policy", type))


@pytest.mark.parametrize("kind", [ShortestFirst, FirstIsVictim, Twice, LeastUsed])
def test_so_do_those_of_these_tests(kind: type[EnginePolicy]) -> None:
    check_engine_policy(kind)


class NoIndex(EnginePolicy):
    def victim(self, running: Sequence[EngineRequest]) -> int:
        return len(running)


class Forgetful(EnginePolicy):
    def __init__(self) -> None:
        self._asked = 0

    def order(self, request: EngineRequest) -> Any:
        self._asked += 1
        return self._asked if self._asked % 2 else str(self._asked)


@pytest.mark.parametrize("kind", [NoIndex, Forgetful])
def test_the_check_finds_faults(kind: type[EnginePolicy]) -> None:
    with pytest.raises(AssertionError):
        check_engine_policy(kind)


def request(name: str, prompt: int, max_tokens: int = 4, priority: int = 0) -> RequestState:
    tokens = [1000 * ord(name) + at for at in range(prompt)]
    return RequestState(
        request_id=name, prompt_token_ids=tokens, max_tokens=max_tokens, priority=priority, ignore_eos=True
    )


def core_with(policy: EnginePolicy | None, **limits: Any) -> EngineCore:
    constants = SchedulerConstants(async_scheduling=False, block_size=4, **limits)
    return build_core(CoreSettings(constants=constants), makes_text=False, policy=policy)


def admitted(core: EngineCore) -> list[str]:
    """The requests in the order of their admission."""
    names: list[str] = []
    while core.has_work:
        names += [new.request_id for new in core.step().scheduled.new_requests]
    return names


def test_a_policy_orders_the_waiting_requests() -> None:
    orders = {}
    for policy in (None, ShortestFirst()):
        core = core_with(policy, max_num_seqs=1)
        for name, prompt in (("a", 30), ("b", 10), ("c", 20), ("d", 10)):
            core.add_request(request(name, prompt))
        orders[policy is None] = admitted(core)
    assert orders == {True: ["a", "b", "c", "d"], False: ["b", "d", "c", "a"]}


@pytest.mark.parametrize(("policy", "victim"), [(None, "b"), (FirstIsVictim(), "a")])
def test_a_policy_chooses_the_victim(policy: EnginePolicy | None, victim: str) -> None:
    core = core_with(policy, total_gpu_blocks=9)
    for name in ("a", "b"):
        core.add_request(request(name, 12, max_tokens=14))
    preempted: list[str] = []
    while core.has_work and not preempted:
        preempted += core.step().scheduled.preempted_req_ids
    assert preempted == [victim]


def test_an_index_that_is_none_is_named() -> None:
    core = core_with(NoIndex(), total_gpu_blocks=9)
    for name in ("a", "b"):
        core.add_request(request(name, 12, max_tokens=14))
    with pytest.raises(EnginehouseError, match=r"NoIndex\.victim returned 2, which is not an index of 2"):
        admitted(core)


def test_a_policy_changes_the_time_of_steps() -> None:
    times = []
    for policy in (None, Twice()):
        core = core_with(policy)
        core.add_request(request("a", 10))
        admitted(core)
        times.append(core.now)
    assert times[1] == pytest.approx(2 * times[0])


def test_a_policy_evicts_what_is_used_least() -> None:
    policy = LeastUsed()
    pool = BlockPool(4, evict=policy.evict)
    blocks = pool.allocate(3)
    pool.store(blocks, [11, 12, 13])
    pool.release(blocks)
    pool.hold([blocks[2]])
    pool.release([blocks[2]])
    pool.hold([blocks[1]])
    pool.release([blocks[1]])
    assert pool.num_free == 3
    assert pool.allocate(1) == [blocks[0]]
    assert pool.find(11) is None
    assert pool.find(12) == blocks[1]
    assert pool.num_free == 2
    assert sorted(pool.allocate(2)) == sorted(blocks[1:])


SLOW = """
import msgspec
from enginehouse import EnginePolicy, hookimpl

class Slow(EnginePolicy):
    class Config(msgspec.Struct, frozen=True):
        factor: float = 2.0

    def __init__(self, config):
        self._factor = config.factor

    def seconds(self, step, seconds):
        return self._factor * seconds

@hookimpl
def register_engine_policies(register):
    register("slow", Slow)
"""


def test_an_installed_policy_is_chosen_by_its_name_in_replays(install: Install) -> None:
    install("slow", SLOW)
    times = []
    for values in ((), (("simulator.policy", "slow"),), (("simulator.policy", "slow"), ("plugins.slow.factor", "3"))):
        trace = [TraceRequest(arrival=0, input_length=100, output_length=5)]
        record = GatewayReplay(iter(trace), Setting(gateway=VirtualSettings(values=values))).run()
        times.append(record.durations[0])
    assert times[1:] == pytest.approx([2 * times[0], 3 * times[0]], rel=1e-3)


def test_the_flag_and_the_key_name_the_same_policy() -> None:
    requests = [request("a", 8), request("b", 8), request("c", 8, priority=-1)]
    constants = SchedulerConstants(policy=SchedulingPolicy.PRIORITY, max_num_seqs=1, async_scheduling=False)
    by_flag = build_core(CoreSettings(constants=constants), makes_text=False)
    by_key = core_with(create("engine_policy", "priority"), max_num_seqs=1)
    for core in (by_flag, by_key):
        for each in requests:
            core.add_request(MovedRequest.of(each).state())
        assert admitted(core) == ["c", "a", "b"]


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    settings = VirtualSettings(values=(("simulator.policy", "fcsf"),))
    with pytest.raises(EnginehouseError, match=r"unknown engine policy 'fcsf'.*fcfs"):
        GatewayReplay(iter([TraceRequest(arrival=0, input_length=1, output_length=1)]), Setting(gateway=settings)).run()
