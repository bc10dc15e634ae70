from __future__ import annotations

import msgspec
import pytest

from enginehouse_sim.simulator.domain.outputs import PADDING_DRAFT
from tests.support.scheduler_fakes import Connectors, Requests, Run, Schedulers


def test_drafts_are_scheduled_behind_the_last_token(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(num_spec_tokens=3)
    scheduler.add_request(new_request(8))
    run(scheduler, spec_token_ids=[[1, 2, 3]])
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"a": 4}
    assert step.scheduled_spec_decode_tokens == {"a": [1, 2, 3]}


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_rejected_drafts_do_not_count_as_computed(
    new_scheduler: Schedulers, new_request: Requests, run: Run, accepted: int
) -> None:
    scheduler = new_scheduler(num_spec_tokens=3)
    request = new_request(8)
    scheduler.add_request(request)
    run(scheduler, spec_token_ids=[[1, 2, 3]])
    run(scheduler, {"a": [1, 2, 3, 4][: accepted + 1]})
    assert request.num_tokens == 9 + accepted + 1
    assert request.num_computed_tokens == 9 + accepted
    counters = scheduler.state.totals
    assert (counters.spec_decode_num_draft_tokens, counters.spec_decode_num_accepted_tokens) == (3, accepted)
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1}


def test_drafts_are_cut_to_the_budget_and_the_others_dropped(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(num_spec_tokens=4, max_num_batched_tokens=10)
    requests = [new_request(4), new_request(4)]
    for request in requests:
        scheduler.add_request(request)
    run(scheduler, spec_token_ids=[[1, 2, 3, 4], [5, 6, 7, 8]])
    scheduler.state.constants = msgspec.structs.replace(scheduler.state.constants, max_num_batched_tokens=7)
    step = scheduler.schedule()
    assert step.num_scheduled_tokens == {"a": 5, "b": 2}
    assert step.scheduled_spec_decode_tokens == {"a": [1, 2, 3, 4], "b": [5]}
    assert requests[1].spec_token_ids == []


def test_drafts_get_room_ahead(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(num_spec_tokens=4)
    scheduler.add_request(new_request(8))
    step, _ = run(scheduler)
    assert len(step.new_requests[0].block_ids) == 3
    run(scheduler)
    assert len(scheduler.state.kv_cache.get_block_ids("a")) == 4


def test_a_first_decode_beside_others_is_as_long_as_they_are(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    scheduler = new_scheduler(connector=new_connector(b=7), num_spec_tokens=3)
    scheduler.add_request(new_request(8))
    run(scheduler, spec_token_ids=[[1, 2, 3]])
    request = new_request(8)
    scheduler.add_request(request)
    step, _ = run(scheduler, {"a": [1], "b": [5]}, spec_token_ids=[[], [6, 7, 8]])
    assert step.num_scheduled_tokens == {"a": 4, "b": 4}
    assert step.scheduled_spec_decode_tokens == {"a": [1, 2, 3], "b": [PADDING_DRAFT] * 3}
    assert (request.num_computed_tokens, request.spec_token_ids) == (8, [6, 7, 8])


def test_new_drafts_replace_the_old_ones_and_none_clears_them(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(num_spec_tokens=2)
    request = new_request(8)
    scheduler.add_request(request)
    run(scheduler, spec_token_ids=[[1, 2, 3, 4]])
    assert request.spec_token_ids == [1, 2]
    run(scheduler, spec_token_ids=[[]])
    assert request.spec_token_ids == []


def test_a_prompt_that_is_not_read_to_its_end_takes_no_drafts(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(num_spec_tokens=2, max_num_batched_tokens=6)
    request = new_request(8)
    scheduler.add_request(request)
    run(scheduler, spec_token_ids=[[1, 2]])
    assert request.spec_token_ids == []


def test_a_stop_among_accepted_drafts_cuts_the_rest(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(num_spec_tokens=3)
    request = new_request(8, stop_token_ids=frozenset({2}))
    scheduler.add_request(request)
    run(scheduler, {"a": [9]}, spec_token_ids=[[1, 2, 3]])
    _, outputs = run(scheduler, {"a": [1, 2, 3, 4]})
    assert list(outputs[0].new_token_ids) == [1, 2]
    assert outputs[0].finish_reason == "stop"


def test_the_last_running_request_does_without_room_for_drafts(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=8, num_spec_tokens=3, max_num_batched_tokens=5)
    request = new_request(26)
    scheduler.add_request(request)
    for _ in range(6):
        step, _ = run(scheduler)
        assert not step.preempted_req_ids
    assert request.num_tokens == 27
