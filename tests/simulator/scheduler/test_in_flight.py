"""Steps whose outcome is not known yet when the next one is planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginehouse_sim.simulator.domain.outputs import PADDING_DRAFT
from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.scheduler.running import preempt_one
from enginehouse_sim.simulator.scheduler.state import StepPlan
from tests.support.scheduler_fakes import Outcome, Requests, Run, Schedulers, counts_of


def test_two_steps_in_flight_work_on_different_requests(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome
) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=10)
    for _ in range(2):
        scheduler.add_request(new_request(10))
    first, second, third = scheduler.schedule(), scheduler.schedule(), scheduler.schedule()
    assert [dict(step.num_scheduled_tokens) for step in (first, second, third)] == [{"a": 10}, {"b": 10}, {}]
    scheduler.update_from_output(first, outcome(scheduler, first))
    fourth = scheduler.schedule()
    assert fourth.num_scheduled_tokens == {"a": 1}
    scheduler.update_from_output(second, outcome(scheduler, second))
    assert scheduler.schedule().num_scheduled_tokens == {"b": 1}


def test_async_scheduling_plans_on_tokens_to_come(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome
) -> None:
    scheduler = new_scheduler(async_scheduling=True)
    request = new_request(10)
    scheduler.add_request(request)
    first = scheduler.schedule()
    assert request.num_output_placeholders == 1
    second = scheduler.schedule()
    assert second.num_scheduled_tokens == {"a": 1}
    assert second.cached_requests[0].num_computed_tokens == 10
    assert request.num_output_placeholders == 2
    scheduler.update_from_output(first, outcome(scheduler, first, {"a": [7]}))
    assert (request.num_tokens, request.num_output_placeholders, request.num_computed_tokens) == (11, 1, 11)
    scheduler.update_from_output(second, outcome(scheduler, second, {"a": [8]}))
    assert request.output_token_ids == [7, 8]


def test_async_scheduling_expects_nothing_of_a_partial_prompt(new_scheduler: Schedulers, new_request: Requests) -> None:
    scheduler = new_scheduler(async_scheduling=True, max_num_batched_tokens=6)
    request = new_request(10)
    scheduler.add_request(request)
    scheduler.schedule()
    assert request.num_output_placeholders == 0
    scheduler.schedule()
    assert request.num_output_placeholders == 1


def test_async_scheduling_plans_no_step_behind_the_last_token(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome
) -> None:
    scheduler = new_scheduler(async_scheduling=True)
    request = new_request(9, max_tokens=2)
    scheduler.add_request(request)
    first, second = scheduler.schedule(), scheduler.schedule()
    assert second.num_scheduled_tokens == {"a": 1}
    scheduler.update_from_output(first, outcome(scheduler, first, {"a": [7]}))
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.update_from_output(second, outcome(scheduler, second, {"a": [7]}))
    assert request.status is RequestStatus.FINISHED_LENGTH_CAPPED


def test_a_step_is_planned_ahead_with_placeholders_for_drafts(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome
) -> None:
    scheduler = new_scheduler(async_scheduling=True, num_spec_tokens=2)
    request = new_request(10)
    scheduler.add_request(request)
    first, second, third = (scheduler.schedule() for _ in range(3))
    assert second.scheduled_spec_decode_tokens == third.scheduled_spec_decode_tokens == {"a": [PADDING_DRAFT] * 2}
    assert (request.num_computed_tokens, request.num_output_placeholders) == (16, 7)
    scheduler.update_from_output(first, outcome(scheduler, first, {"a": [5]}, spec_token_ids=[[6, 7]]))
    scheduler.update_from_output(second, outcome(scheduler, second, {"a": [6, 9]}, spec_token_ids=[[8, 8]]))
    assert request.output_token_ids == [5, 6, 9]
    assert (request.num_computed_tokens, request.num_output_placeholders) == (15, 3)


def test_a_grammar_keeps_a_request_to_one_step_at_a_time(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome, new_grammars: Callable[..., Any]
) -> None:
    scheduler = new_scheduler(async_scheduling=True, grammars=new_grammars("a"))
    scheduler.add_request(new_request(10, structured_output="json"))
    first = scheduler.schedule()
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.update_from_output(first, outcome(scheduler, first, {"a": [7]}))
    assert scheduler.schedule().num_scheduled_tokens == {"a": 1}


@pytest.mark.parametrize("length", [7, 8])
def test_with_async_scheduling_blocks_are_found_once_their_tokens_are_known(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome, length: int
) -> None:
    scheduler = new_scheduler(async_scheduling=True)
    prompt = list(range(length))
    scheduler.add_request(new_request(prompt))
    steps = [scheduler.schedule()]
    for _ in range(12 - length):
        steps.append(scheduler.schedule())
        step = steps.pop(0)
        scheduler.update_from_output(step, outcome(scheduler, step, {"a": [7]}))
    twin = new_request([*prompt, *[7] * 20])
    assert scheduler.state.requests["a"].num_tokens == 12
    assert scheduler.state.kv_cache.get_computed_blocks(twin).num_tokens == 8
    steps.append(scheduler.schedule())
    step = steps.pop(0)
    scheduler.update_from_output(step, outcome(scheduler, step, {"a": [7]}))
    assert scheduler.state.kv_cache.get_computed_blocks(twin).num_tokens == 12


def test_a_request_aborted_in_flight_gets_nothing_of_that_step(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome
) -> None:
    scheduler = new_scheduler()
    request = new_request(10)
    scheduler.add_request(request)
    step = scheduler.schedule()
    scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.update_from_output(step, outcome(scheduler, step)) == []
    assert request.output_token_ids == []
    assert scheduler.state.kv_cache.num_free_blocks == 100


def test_a_request_preempted_in_flight_still_gets_its_token_and_returns_only_then(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome, run: Run
) -> None:
    scheduler = new_scheduler(enable_prefix_caching=False, num_spec_tokens=2)
    request = new_request(10)
    scheduler.add_request(request)
    run(scheduler, spec_token_ids=[[1, 2]])
    step = scheduler.schedule()
    preempt_one(scheduler.state, StepPlan(9, 0, 0))
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.update_from_output(step, outcome(scheduler, step, {"a": [5]}, spec_token_ids=[[3]]))
    assert (request.num_tokens, request.num_computed_tokens, request.spec_token_ids) == (12, 0, [])
    assert scheduler.schedule().num_scheduled_tokens == {"a": 12}


@pytest.mark.parametrize("keep_blocks", [True, False])
def test_a_request_preempted_or_paused_in_flight_can_end_there(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome, keep_blocks: bool
) -> None:
    scheduler = new_scheduler()
    for _ in range(2):
        scheduler.add_request(new_request(10, max_tokens=1))
    step = scheduler.schedule()
    preempt_one(scheduler.state, StepPlan(9, 0, 0))
    scheduler.pause("a", keep_blocks=keep_blocks)
    outputs = scheduler.update_from_output(step, outcome(scheduler, step, {"a": [7], "b": [7]}))
    assert [output.finish_reason for output in outputs] == ["length", "length"]
    assert counts_of(scheduler) == (0, 0, 0)
    assert scheduler.state.kv_cache.num_free_blocks == 100


def test_a_preempted_request_is_not_resumed_while_two_steps_of_it_are_under_way(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome
) -> None:
    scheduler = new_scheduler(async_scheduling=True)
    request = new_request(10)
    scheduler.add_request(request)
    first, second = scheduler.schedule(), scheduler.schedule()
    preempt_one(scheduler.state, StepPlan(9, 0, 0))
    scheduler.update_from_output(first, outcome(scheduler, first, {"a": [7]}))
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.update_from_output(second, outcome(scheduler, second, {"a": [8]}))
    assert request.output_token_ids == [7, 8]
    assert scheduler.schedule().total_num_scheduled_tokens > 0
