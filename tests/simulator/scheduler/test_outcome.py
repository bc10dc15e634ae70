from __future__ import annotations

from typing import Any

import pytest

from enginehouse_sim.simulator.domain.request import RequestStatus
from tests.support.scheduler_fakes import Requests, Run, Schedulers, counts_of

EOS, STOP = 2, 50


@pytest.mark.parametrize(
    ("fields", "sampled", "kept", "reason", "stop_reason"),
    [
        ({"max_tokens": 3}, [11, 12, 13, 14], [11, 12, 13], "length", None),
        ({"eos_token_id": EOS}, [11, EOS, 13], [11, EOS], "stop", None),
        ({"eos_token_id": EOS, "ignore_eos": True}, [11, EOS, 13], [11, EOS, 13], None, None),
        ({"stop_token_ids": frozenset({STOP})}, [STOP, 12], [STOP], "stop", STOP),
        ({"max_tokens": 2, "min_tokens": 9}, [11, 12, 13], [11, 12], "length", None),
        ({"max_tokens": 2, "eos_token_id": EOS}, [11, EOS], [11, EOS], "stop", None),
        (
            {"eos_token_id": EOS, "stop_token_ids": frozenset({EOS})},
            [EOS, 12],
            [EOS],
            "stop",
            None,
        ),
    ],
)
def test_tokens_are_taken_one_by_one_until_one_stops(
    new_scheduler: Schedulers,
    new_request: Requests,
    run: Run,
    fields: dict[str, Any],
    sampled: list[int],
    kept: list[int],
    reason: str | None,
    stop_reason: int | None,
) -> None:
    scheduler = new_scheduler(num_spec_tokens=3)
    request = new_request(8, **fields)
    scheduler.add_request(request)
    _, outputs = run(scheduler, {"a": sampled})
    (output,) = outputs
    assert list(output.new_token_ids) == kept
    assert request.output_token_ids == kept
    assert (output.finish_reason, output.stop_reason) == (reason, stop_reason)
    assert ("a" in scheduler.state.requests) == (reason is None)


def test_the_model_length_stops_as_well(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_model_len=10)
    request = new_request(8)
    scheduler.add_request(request)
    _, outputs = run(scheduler, {"a": [1, 2, 3]})
    assert request.output_token_ids == [1, 2]
    assert outputs[0].finish_reason == "length"


def test_a_prompt_that_is_not_read_to_its_end_gives_no_output(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=10)
    scheduler.add_request(new_request(15))
    assert run(scheduler)[1] == []
    assert [output.request_id for output in run(scheduler)[1]] == ["a"]


def test_a_finished_request_is_reported_to_the_runner_with_the_next_step_only(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler()
    scheduler.add_request(new_request(8, max_tokens=1))
    first, _ = run(scheduler)
    assert first.finished_req_ids == ()
    assert scheduler.has_finished_requests()
    second, _ = run(scheduler)
    assert second.finished_req_ids == ("a",)
    assert not scheduler.has_finished_requests()
    assert run(scheduler)[0].finished_req_ids == ()
    assert second.finished_req_ids == ("a",)


def test_outputs_have_the_order_of_the_plan(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler()
    for _ in range(3):
        scheduler.add_request(new_request(4))
    _, outputs = run(scheduler)
    assert [output.request_id for output in outputs] == ["a", "b", "c"]


def test_requests_can_be_finished_from_outside_wherever_they_are(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_seqs=2)
    requests = [new_request(8) for _ in range(4)]
    for request in requests:
        scheduler.add_request(request)
    run(scheduler)
    scheduler.pause("a", keep_blocks=True)
    scheduler.finish_requests(["a", "b", "d", "a", "unknown"], RequestStatus.FINISHED_ABORTED)
    assert [request.status.finished for request in requests] == [True, True, False, True]
    assert counts_of(scheduler) == (0, 1, 0)
    assert scheduler.state.kv_cache.num_free_blocks == 100
    step, _ = run(scheduler)
    assert step.finished_req_ids == ("a", "b", "d")
    assert step.num_scheduled_tokens == {"c": 8}


def test_pooling_ends_with_its_result(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_num_batched_tokens=6)
    scheduler.add_request(new_request(8, pooling=True))
    run(scheduler)
    _, outputs = run(scheduler, {"a": []}, pooler_output={"a": [0.5]})
    (output,) = outputs
    assert (output.pooling_output, output.finish_reason) == ([0.5], "stop")
    assert not scheduler.state.requests


def test_a_pooled_prompt_may_fill_the_model(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_model_len=10, max_num_batched_tokens=6)
    scheduler.add_request(new_request(10, pooling=True))
    assert [run(scheduler, {"a": []})[0].num_scheduled_tokens["a"] for _ in range(2)] == [6, 4]


def test_logprobs_come_with_the_tokens_that_were_kept(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler()
    scheduler.add_request(new_request(8, max_tokens=2))
    _, outputs = run(scheduler, {"a": [1, 2, 3]}, logprobs=[[[(1, -0.1)], [(2, -0.2)], [(3, -0.3)]]])
    assert outputs[0].new_logprobs == [[(1, -0.1)], [(2, -0.2)]]


def test_the_prefix_cache_is_reset_only_when_nothing_is_in_use(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_seqs=1)
    scheduler.add_request(new_request(list(range(8)), max_tokens=2))
    run(scheduler)
    assert not scheduler.reset_prefix_cache()
    run(scheduler)
    scheduler.add_request(new_request(list(range(8))))
    assert scheduler.reset_prefix_cache()
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 8}


def test_shutdown_frees_everything(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(max_num_seqs=1)
    for _ in range(2):
        scheduler.add_request(new_request(8))
    run(scheduler)
    scheduler.shutdown()
    assert counts_of(scheduler) == (0, 0, 0)
    assert scheduler.state.kv_cache.num_free_blocks == 100
