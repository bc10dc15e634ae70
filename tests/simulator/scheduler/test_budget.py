from __future__ import annotations

import pytest

from tests.support.scheduler_fakes import Requests, Run, Schedulers, counts_of


def test_a_prompt_that_fits_is_scheduled_whole(new_scheduler: Schedulers, new_request: Requests) -> None:
    scheduler = new_scheduler()
    scheduler.add_request(new_request(30))
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"a": 30}
    assert step.total_num_scheduled_tokens == 30
    assert [new.request_id for new in step.new_requests] == ["a"]
    assert len(step.new_requests[0].block_ids) == 8


def test_running_requests_come_before_waiting_ones(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=10)
    scheduler.add_request(new_request(8))
    run(scheduler)
    scheduler.add_request(new_request(20))
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 1, "b": 9}


def test_a_prompt_is_cut_to_the_budget(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=16)
    request = new_request(40)
    scheduler.add_request(request)
    sizes, computed = [], []
    for _ in range(4):
        step, _ = run(scheduler)
        sizes.append(step.num_scheduled_tokens["a"])
        computed.append(request.num_computed_tokens)
    assert sizes == [16, 16, 8, 1]
    assert computed == [16, 32, 40, 41]
    assert request.num_tokens == 42


def test_several_prompts_share_the_budget_in_order(new_scheduler: Schedulers, new_request: Requests) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=50)
    for length in (20, 20, 20, 20):
        scheduler.add_request(new_request(length))
    assert scheduler.schedule().num_scheduled_tokens == {"a": 20, "b": 20, "c": 10}
    assert counts_of(scheduler) == (3, 1, 0)


def test_without_chunked_prefill_a_prompt_waits_for_a_step_of_its_own(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=50, chunked_prefill_enabled=False)
    for length in (30, 30, 20, 30):
        scheduler.add_request(new_request(length))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 30}
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1, "b": 30}


def test_no_prompt_takes_more_of_a_step_than_the_long_prefill_threshold(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(long_prefill_token_threshold=12)
    scheduler.add_request(new_request(30))
    scheduler.add_request(new_request(10))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 12, "b": 10}
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 12, "b": 1}
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 6, "b": 1}


@pytest.mark.parametrize(("others", "sizes"), [(0, [30, 1]), (1, [12, 12])])
def test_the_threshold_does_not_hold_for_a_request_that_is_alone(
    new_scheduler: Schedulers, new_request: Requests, run: Run, others: int, sizes: list[int]
) -> None:
    scheduler = new_scheduler(long_prefill_token_threshold=12)
    for _ in range(1 + others):
        scheduler.add_request(new_request(30))
    assert [run(scheduler)[0].num_scheduled_tokens["a"] for _ in range(2)] == sizes


def test_no_more_than_max_num_seqs_run(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_num_seqs=2)
    for _ in range(3):
        scheduler.add_request(new_request(5, max_tokens=2))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 5, "b": 5}
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1, "b": 1}
    assert run(scheduler)[0].num_scheduled_tokens == {"c": 5}


def test_a_request_ends_at_the_model_length(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_model_len=12)
    request = new_request(10)
    scheduler.add_request(request)
    run(scheduler)
    _, outputs = run(scheduler)
    assert request.num_tokens == 12
    assert outputs[0].finish_reason == "length"
    assert not scheduler.state.requests


def test_drafts_never_reach_beyond_the_model_length(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_model_len=12, num_spec_tokens=4)
    request = new_request(9)
    scheduler.add_request(request)
    run(scheduler, spec_token_ids=[[1, 2, 3, 4]])
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"a": 2}
    assert step.scheduled_spec_decode_tokens == {"a": [1]}


def test_a_request_with_nothing_to_do_is_passed_over(new_scheduler: Schedulers, new_request: Requests) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=10)
    scheduler.add_request(new_request(4))
    scheduler.add_request(new_request(10))
    assert scheduler.schedule().num_scheduled_tokens == {"a": 4, "b": 6}
    assert scheduler.schedule().num_scheduled_tokens == {"b": 4}


def test_admissions_only_come_every_so_many_steps_while_requests_run(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(prefill_schedule_interval=3)
    scheduler.add_request(new_request(5))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 5}
    scheduler.add_request(new_request(5))
    assert [dict(run(scheduler)[0].num_scheduled_tokens) for _ in range(3)] == [{"a": 1}, {"a": 1}, {"a": 1, "b": 5}]


def test_requests_that_hold_blocks_count_as_active_even_if_they_do_not_run(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_active_seqs=2)
    for _ in range(3):
        scheduler.add_request(new_request(5))
    run(scheduler)
    scheduler.pause("a", keep_blocks=True)
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 1}
    scheduler.resume("a")
    scheduler.pause("a", keep_blocks=False)
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 1, "c": 5}


def test_the_plan_counts_as_computed_once_it_is_made(new_scheduler: Schedulers, new_request: Requests) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=16)
    request = new_request(40)
    scheduler.add_request(request)
    first = scheduler.schedule()
    assert first.new_requests[0].num_computed_tokens == 0
    assert request.num_computed_tokens == 16
    assert scheduler.schedule().cached_requests[0].num_computed_tokens == 16


def test_running_requests_report_their_new_blocks_only(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler()
    scheduler.add_request(new_request(7))
    seen = list(run(scheduler)[0].new_requests[0].block_ids)
    sizes = []
    for _ in range(6):
        (cached,) = run(scheduler)[0].cached_requests
        assert not cached.resumed_from_preemption
        sizes.append(len(cached.new_block_ids))
        seen.extend(cached.new_block_ids)
    assert sizes == [0, 1, 0, 0, 0, 1]
    assert tuple(seen) == tuple(scheduler.state.kv_cache.get_block_ids("a"))
