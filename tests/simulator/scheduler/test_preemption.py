from __future__ import annotations

from enginehouse_sim.options import SchedulingPolicy
from enginehouse_sim.simulator.domain.asked import MultiModalInput
from enginehouse_sim.simulator.domain.request import CachedRequestData, RequestStatus
from enginehouse_sim.simulator.scheduler.encoder import EncoderCache, EncoderPlan
from enginehouse_sim.simulator.scheduler.running import preempt_one
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.scheduler.state import StepPlan
from tests.support.scheduler_fakes import Requests, Run, Schedulers


def waiting(scheduler: BatchScheduler) -> list[str]:
    return [request.request_id for request in scheduler.state.waiting]


def test_the_last_of_the_running_loses_its_blocks(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7)
    requests = [new_request(8), new_request(8), new_request(6)]
    for request in requests:
        scheduler.add_request(request)
    run(scheduler)
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 1, "b": 1}
    assert step.preempted_req_ids == ["c"]
    assert requests[2].status is RequestStatus.PREEMPTED
    assert requests[2].num_computed_tokens == 0
    assert requests[2].num_preemptions == 1
    assert scheduler.state.totals.num_preemptions == 1


def test_a_request_that_is_last_itself_stops_the_running_phase(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=5)
    for length in (6, 8):
        scheduler.add_request(new_request(length))
    run(scheduler)
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 1}
    assert step.preempted_req_ids == ["b"]


def test_a_step_that_preempts_admits_no_request(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7)
    for length in (8, 8, 6):
        scheduler.add_request(new_request(length))
    run(scheduler)
    scheduler.add_request(new_request(1))
    step, _ = run(scheduler)
    assert "d" not in step.num_scheduled_tokens
    assert waiting(scheduler) == ["c", "d"]


def test_preempted_requests_return_in_order_of_arrival(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7, long_prefill_token_threshold=4, reserve_full_sequence=False)
    for length in (20, 4, 4):
        scheduler.add_request(new_request(length))
    run(scheduler)
    for _ in range(10):
        run(scheduler)
        if len(waiting(scheduler)) == 2:
            break
    assert waiting(scheduler) == ["b", "c"]


def test_a_resumed_request_replays_its_outputs_into_new_blocks(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7, enable_prefix_caching=False)
    for length in (8, 8, 6):
        scheduler.add_request(new_request(length, max_tokens=3))
    run(scheduler)
    run(scheduler)
    run(scheduler)
    step, _ = run(scheduler)
    (resumed,) = step.cached_requests
    assert resumed.resumed_from_preemption
    assert step.num_scheduled_tokens == {"c": 7}
    assert len(resumed.new_block_ids) == 2
    assert list(resumed.token_ids) == scheduler.state.requests["c"].all_token_ids[:7]


def test_by_priority_the_least_urgent_and_latest_loses_its_blocks(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=9, policy=SchedulingPolicy.PRIORITY)
    for priority, arrival in ((1, 0.0), (0, 1.0), (1, 2.0), (0, 3.0)):
        scheduler.add_request(new_request(8, priority=priority, arrival_time=arrival))
    step, _ = run(scheduler)
    assert list(step.num_scheduled_tokens) == ["b", "d", "a", "c"]
    step, _ = run(scheduler)
    assert list(step.num_scheduled_tokens) == ["b", "d"]
    assert step.preempted_req_ids == ["c", "a"]
    assert waiting(scheduler) == ["a", "c"]


def test_preemption_by_priority_returns_the_budget_of_a_scheduled_request(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=6, policy=SchedulingPolicy.PRIORITY)
    low = new_request(5, priority=5)
    scheduler.add_request(low)
    run(scheduler)
    scheduler.add_request(new_request(12, arrival_time=1.0))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1, "b": 12}
    step, _ = run(scheduler)
    assert step.preempted_req_ids == ["a"]
    assert step.num_scheduled_tokens == {"b": 1}
    assert [data.request_id for data in step.cached_requests] == ["b"]
    assert step.total_num_scheduled_tokens == 1
    assert low.num_computed_tokens == 0


def test_a_removed_request_returns_its_budgets(new_request: Requests) -> None:
    request = new_request(20, mm_inputs=[MultiModalInput("x", 2, 8), MultiModalInput("y", 10, 5)])
    plan = StepPlan(0, 30, 15)
    plan.add(request, 20)
    plan.add_encoder_inputs(EncoderCache(100), request, EncoderPlan(20, (0, 1), (), 13))
    plan.cached.append(CachedRequestData("a", False, (), 0))
    plan.spec_tokens["a"] = [1, 2]
    assert (plan.token_budget, plan.encoder_budget) == (10, 2)
    plan.remove(request)
    assert (plan.token_budget, plan.encoder_budget) == (30, 15)
    assert not any((plan.requests, plan.num_scheduled_tokens, plan.cached, plan.spec_tokens, plan.encoder_inputs))


def test_by_priority_the_urgent_are_admitted_first_and_equals_in_order_of_arrival(
    new_scheduler: Schedulers, new_request: Requests
) -> None:
    scheduler = new_scheduler(policy=SchedulingPolicy.PRIORITY)
    for priority, arrival in ((2, 0.0), (0, 3.0), (1, 2.0), (0, 1.0), (1, 2.0)):
        scheduler.add_request(new_request(5, priority=priority, arrival_time=arrival))
    assert list(scheduler.schedule().num_scheduled_tokens) == ["d", "b", "c", "e", "a"]


def test_a_request_that_loses_its_blocks_lets_go_of_its_images(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=10)
    scheduler.add_request(new_request(20, mm_inputs=[MultiModalInput("x", 0, 16)]))
    assert run(scheduler)[0].scheduled_encoder_inputs == {"a": (0,)}
    preempt_one(scheduler.state, StepPlan(1, 10, 10))
    assert not scheduler.state.encoder_cache.in_use
    step, _ = run(scheduler)
    assert step.scheduled_encoder_inputs == {}


def test_a_request_that_loses_its_blocks_loses_its_drafts(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(num_spec_tokens=3, enable_prefix_caching=False)
    request = new_request(8)
    scheduler.add_request(request)
    run(scheduler, spec_token_ids=[[1, 2, 3]])
    assert request.spec_token_ids == [1, 2, 3]
    preempt_one(scheduler.state, StepPlan(1, 10, 10))
    assert request.spec_token_ids == []
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 9}
