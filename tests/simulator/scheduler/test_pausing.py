from __future__ import annotations

import pytest

from enginehouse_sim.simulator.domain.request import RequestStatus
from tests.support.scheduler_fakes import Outcome, Requests, Run, Schedulers, counts_of


def test_a_paused_request_keeps_its_blocks_and_continues(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler()
    request = new_request(8)
    scheduler.add_request(request)
    run(scheduler)
    blocks = scheduler.state.kv_cache.get_block_ids("a")
    scheduler.pause("a", keep_blocks=True)
    assert request.status is RequestStatus.PAUSED
    assert counts_of(scheduler) == (0, 0, 1)
    assert run(scheduler)[0].num_scheduled_tokens == {}
    assert scheduler.resume("a")
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 1}
    assert not step.cached_requests[0].resumed_from_preemption
    assert tuple(scheduler.state.kv_cache.get_block_ids("a"))[:2] == tuple(blocks)


def test_a_paused_request_without_blocks_is_admitted_anew_from_the_head(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(enable_prefix_caching=False, max_num_seqs=2)
    for _ in range(3):
        scheduler.add_request(new_request(8))
    run(scheduler)
    scheduler.pause("a", keep_blocks=False)
    assert scheduler.state.kv_cache.get_block_ids("a") == ()
    assert scheduler.resume("a")
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"b": 1, "a": 9}
    assert step.cached_requests[1].resumed_from_preemption


def test_a_resumed_request_is_not_the_first_to_be_preempted(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler()
    for arrival in (0.0, 1.0, 2.0):
        scheduler.add_request(new_request(8, arrival_time=arrival))
    run(scheduler)
    scheduler.pause("b", keep_blocks=True)
    scheduler.resume("b")
    assert [request.request_id for request in scheduler.state.running] == ["a", "b", "c"]


def test_a_full_batch_takes_no_paused_request_back(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_num_seqs=1)
    for _ in range(2):
        scheduler.add_request(new_request(8, max_tokens=3))
    run(scheduler)
    scheduler.pause("a", keep_blocks=True)
    run(scheduler)
    assert not scheduler.resume("a")
    assert counts_of(scheduler) == (1, 0, 1)
    scheduler.finish_requests(["b"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.resume("a")


def test_a_step_under_way_brings_a_paused_request_its_tokens(
    new_scheduler: Schedulers, new_request: Requests, outcome: Outcome, run: Run
) -> None:
    scheduler = new_scheduler()
    request = new_request(8)
    scheduler.add_request(request)
    step = scheduler.schedule()
    scheduler.pause("a", keep_blocks=True)
    scheduler.update_from_output(step, outcome(scheduler, step, {"a": [7]}))
    assert (request.num_tokens, request.num_computed_tokens) == (9, 8)
    scheduler.resume("a")
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1}


def test_only_running_requests_are_paused_and_only_paused_ones_resumed(
    new_scheduler: Schedulers, new_request: Requests
) -> None:
    scheduler = new_scheduler()
    scheduler.add_request(new_request(8))
    with pytest.raises(ValueError, match="'a' is not running"):
        scheduler.pause("a", keep_blocks=True)
    with pytest.raises(ValueError, match="'a' is not paused"):
        scheduler.resume("a")
