"""Step by step, the figures of a recorded engine trace: blocks of 16 tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.scheduler.running import preempt_one
from enginehouse_sim.simulator.scheduler.state import StepPlan
from tests.support.scheduler_fakes import Requests, Run, Schedulers

SIXTEEN: dict[str, Any] = {"block_size": 16, "max_num_batched_tokens": 8192, "max_model_len": 8192}


def test_a_prompt_of_15_tokens_has_one_block_and_gets_a_second_for_its_17th_token(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(**SIXTEEN)
    request = new_request(15)
    scheduler.add_request(request)
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 15}
    assert len(step.new_requests[0].block_ids) == 1
    assert (request.num_tokens, request.num_computed_tokens) == (16, 15)
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 1}
    assert (request.num_tokens, request.num_computed_tokens) == (17, 16)
    assert len(scheduler.state.kv_cache.get_block_ids("a")) == 1
    run(scheduler)
    assert len(scheduler.state.kv_cache.get_block_ids("a")) == 2


def test_16_tokens_here_and_32_outside_leave_16_of_64_to_compute(
    new_scheduler: Schedulers, new_request: Requests, new_connector: Callable[..., Any], run: Run
) -> None:
    connector = new_connector(b=48)
    scheduler = new_scheduler(connector=connector, **SIXTEEN)
    prompt = list(range(64))
    scheduler.add_request(new_request([*prompt[:16], 900]))
    run(scheduler)
    request = new_request(prompt)
    scheduler.add_request(request)
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens["b"] == 16
    assert step.new_requests[0].num_computed_tokens == 48
    assert request.num_cached_tokens == 48
    assert connector.asked[-1] == ("b", 16)
    assert connector.allocated[-1][2] == 32


def test_a_request_preempted_at_34_known_and_20_computed_has_34_to_compute_again(
    new_scheduler: Schedulers, new_request: Requests
) -> None:
    scheduler = new_scheduler(**{**SIXTEEN, "max_num_batched_tokens": 20, "enable_prefix_caching": False})
    request = new_request(34)
    scheduler.add_request(request)
    scheduler.schedule()
    assert (request.num_tokens, request.num_computed_tokens) == (34, 20)
    preempt_one(scheduler.state, StepPlan(1, 20, 0))
    assert (request.status, request.num_computed_tokens) == (RequestStatus.PREEMPTED, 0)
    scheduler.state.in_flight.clear()
    assert scheduler.schedule().num_scheduled_tokens == {"a": 20}
    assert scheduler.schedule().num_scheduled_tokens == {"a": 14}


def test_after_48_outputs_a_preempted_request_of_16_tokens_has_64_to_compute(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(**SIXTEEN, enable_prefix_caching=False)
    request = new_request(16)
    scheduler.add_request(request)
    for _ in range(48):
        run(scheduler)
    preempt_one(scheduler.state, StepPlan(48, 20, 0))
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 64}
    (resumed,) = step.cached_requests
    assert resumed.resumed_from_preemption
    assert len(resumed.token_ids) == 64
    assert resumed.num_computed_tokens == 0
    assert tuple(resumed.new_block_ids) == tuple(scheduler.state.kv_cache.get_block_ids("a"))
    assert request.num_prompt_tokens == 16


def test_100_prompt_tokens_and_50_of_an_answer_are_150_at_most(
    new_scheduler: Schedulers, new_request: Requests
) -> None:
    scheduler = new_scheduler(**SIXTEEN)
    request = new_request(100, max_tokens=50)
    scheduler.add_request(request)
    assert request.max_num_tokens == 150
