"""Steps made at once are the same as steps made one by one, down to block ids and the last digit of the clock."""

from __future__ import annotations

from random import Random

import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.domain.request import RequestState
from tests.support.asked import fields_of, new_state


def new_core(random: Random) -> EngineCore:
    longest = random.randint(20, 90)
    constants = SchedulerConstants(
        block_size=random.choice([1, 3, 4, 16]),
        total_gpu_blocks=random.randint(100, 200),
        max_model_len=longest,
        max_num_seqs=random.randint(1, 6),
        max_num_batched_tokens=random.randint(8, 64),
        enable_prefix_caching=random.random() < 0.8,
        async_scheduling=random.random() < 0.7,
    )
    profile = random.choice(["polynomial", "h100-llama3-8b", ""])
    return build_core(CoreSettings(constants=constants, profile=profile), makes_text=False)


def new_request(random: Random, core: EngineCore, number: int) -> RequestState:
    longest = core.scheduler.state.constants.max_model_len
    prompt = random.randint(1, longest - 1)
    return new_state(
        request_id=f"r{number}", prompt_token_ids=[0] * prompt, max_tokens=random.randint(1, longest), ignore_eos=True
    )


def everything(core: EngineCore) -> object:
    """All that a core remembers, but for a hint that says nothing new: until when no block is needed."""
    state = core.scheduler.state
    kv_cache = state.kv_cache
    pool = {name: getattr(kv_cache.pool, name) for name in dir(kv_cache.pool) if not name.startswith("__")}
    return (
        core.now,
        [{**fields_of(request), "fast_path_until": None} for request in state.requests.values()],
        [request.request_id for request in state.running],
        [kv_cache.get_block_ids(name) for name in state.requests],
        {name: repr(value) for name, value in pool.items() if not callable(value)},
        [(step, output.num_scheduled_tokens) for step, output in state.in_flight.items()],
        state.next_step,
        state.totals,
    )


@pytest.mark.parametrize("first", [0, *(pytest.param(each, marks=pytest.mark.long) for each in (30, 60, 90))])
def test_steps_at_once_are_steps_one_by_one(first: int) -> None:
    assert sum(num_made_at_once(seed) for seed in range(first, first + 30)) > 500


def num_made_at_once(seed: int) -> int:
    """Compare two cores; return how many steps one of them made at once."""
    one_by_one, at_once = new_core(Random(seed)), new_core(Random(seed))
    random, passed = Random(seed), 0
    for number in range(60):
        come_and_go(random, number, one_by_one, at_once)
        one_by_one.begin_step()
        at_once.begin_step()
        ends = at_once.foresee()
        count = random.randint(0, len(ends) - 1)
        if count:
            at_once.pass_steps(count)
            passed += count
        for end in ends[:count]:
            one_by_one.end_step()
            one_by_one.begin_step()
            assert one_by_one.now == end
        assert everything(one_by_one) == everything(at_once)
        assert one_by_one.end_step().outputs == at_once.end_step().outputs
        assert everything(one_by_one) == everything(at_once)
    return passed


def come_and_go(random: Random, number: int, *cores: EngineCore) -> None:
    """The same requests come to all ``cores``, and some leave."""
    comes, leaves = random.random() < 0.2, random.random() < 0.05
    for core in cores:
        if comes or not core.has_requests:
            core.scheduler.add_request(new_request(Random(number), core, number))
        if leaves:
            core.scheduler.finish_requests([next(iter(core.scheduler.state.requests))])


def test_a_step_is_foreseen_until_something_must_be_decided() -> None:
    core = build_core(CoreSettings(ttft=1.0, tpot=0.1), makes_text=False)
    core.scheduler.add_request(new_state(request_id="a", prompt_token_ids=[0] * 10, max_tokens=30, ignore_eos=True))
    core.begin_step()
    assert core.foresee() == [1.0], "the prompt is read"
    core.end_step()
    core.begin_step()
    assert core.foresee() == pytest.approx([1.1 + n / 10 for n in range(28)]), "the 29th next token is planned already"
    core.scheduler.add_request(new_state(request_id="b", prompt_token_ids=[0] * 10, max_tokens=30, ignore_eos=True))
    assert core.foresee() == pytest.approx([1.1]), "the next plan admits"


def test_a_full_cache_is_foreseen() -> None:
    constants = SchedulerConstants(total_gpu_blocks=6, max_model_len=80, max_num_batched_tokens=80)
    core = build_core(CoreSettings(constants=constants), makes_text=False)
    for name in "ab":
        core.scheduler.add_request(new_state(request_id=name, prompt_token_ids=[ord(name)] * 20, max_tokens=60))
    preempted = False
    while core.has_requests:
        core.begin_step()
        count = len(core.foresee()) - 1
        if count:
            core.pass_steps(count)
        preempted |= bool(core.end_step().scheduled.preempted_req_ids)
    assert preempted
