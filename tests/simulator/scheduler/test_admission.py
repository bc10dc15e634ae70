from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enginehouse_sim.simulator.domain.asked import MultiModalInput
from tests.support.scheduler_fakes import Requests, Run, Schedulers


def test_a_cached_prefix_is_not_computed_again(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler()
    scheduler.add_request(new_request(list(range(12))))
    run(scheduler)
    request = new_request([*range(8), 100, 101, 102])
    scheduler.add_request(request)
    step, outputs = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 1, "b": 3}
    assert step.new_requests[0].num_computed_tokens == 8
    assert outputs[1].num_cached_tokens == 8
    assert scheduler.state.totals.prefix_cache_queries == 12 + 11
    assert scheduler.state.totals.prefix_cache_hits == 8


def test_of_a_prompt_that_is_cached_whole_the_last_block_is_computed(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler()
    for _ in range(2):
        scheduler.add_request(new_request(list(range(12))))
        step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 1, "b": 4}


def test_what_was_cached_is_counted_at_the_first_admission_only(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler()
    request = new_request(8)
    scheduler.add_request(request)
    run(scheduler)
    scheduler.pause("a", keep_blocks=False)
    scheduler.resume("a")
    step, _ = run(scheduler)
    assert step.cached_requests[0].num_computed_tokens == 8
    assert request.num_cached_tokens == 0


@pytest.mark.parametrize(("reserve", "second"), [(True, {"a": 1}), (False, {"a": 1, "b": 9})])
def test_a_prompt_is_admitted_only_if_all_of_it_fits(
    new_scheduler: Schedulers, new_request: Requests, run: Run, reserve: bool, second: dict[str, int]
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=11, max_num_batched_tokens=10, reserve_full_sequence=reserve)
    scheduler.add_request(new_request(10))
    run(scheduler)
    scheduler.add_request(new_request(36))
    assert run(scheduler)[0].num_scheduled_tokens == second


def test_an_admission_leaves_the_watermark_free(new_scheduler: Schedulers, new_request: Requests, run: Run) -> None:
    scheduler = new_scheduler(total_gpu_blocks=11, watermark=0.2)
    scheduler.add_request(new_request(20))
    run(scheduler)
    scheduler.add_request(new_request(12))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1}
    scheduler.finish_requests(["b"], scheduler.state.requests["b"].status.FINISHED_ABORTED)
    scheduler.add_request(new_request(8))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1, "c": 8}


def test_the_watermark_does_not_keep_a_request_from_an_idle_engine(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=11, watermark=0.2)
    scheduler.add_request(new_request(36))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 36}


def test_no_request_overtakes_one_for_which_blocks_are_short(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=11)
    scheduler.add_request(new_request(20))
    run(scheduler)
    scheduler.add_request(new_request(24))
    scheduler.add_request(new_request(4))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1}
    assert [request.request_id for request in scheduler.state.waiting] == ["b", "c"]


@pytest.mark.parametrize(
    ("fields", "constants"),
    [
        ({"prompt": 41}, {}),
        ({"prompt": 30}, {"max_model_len": 30}),
        ({"prompt": 30}, {"max_num_batched_tokens": 20, "chunked_prefill_enabled": False}),
        ({"prompt": 30, "mm_inputs": [MultiModalInput("x", 2, 12)]}, {"encoder_cache_size": 10}),
    ],
)
def test_a_request_that_can_never_run_ends_alone(
    new_scheduler: Schedulers, new_request: Requests, run: Run, fields: dict[str, Any], constants: dict[str, Any]
) -> None:
    scheduler = new_scheduler(**{"total_gpu_blocks": 11, **constants})
    scheduler.add_request(new_request(**fields))
    scheduler.add_request(new_request(5))
    step, outputs = run(scheduler)
    assert step.num_scheduled_tokens == {"b": 5}
    assert [(output.request_id, output.finish_reason) for output in outputs] == [
        ("b", None),
        ("a", "length"),
    ]
    assert step.finished_req_ids == ("a",)


def test_a_request_that_outgrows_the_cache_ends_with_what_it_has(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=4)
    request = new_request(10)
    scheduler.add_request(request)
    ended = None
    for _ in range(6):
        _, outputs = run(scheduler)
        ended = next((output for output in outputs if output.finish_reason), ended)
    assert ended is not None
    assert ended.finish_reason == "length"
    assert request.num_tokens == 13
    assert scheduler.state.kv_cache.num_free_blocks == 3


def test_an_id_in_use_is_refused(new_scheduler: Schedulers, new_request: Requests) -> None:
    scheduler = new_scheduler()
    scheduler.add_request(new_request(5))
    with pytest.raises(ValueError, match="'a' exists already"):
        scheduler.add_request(new_request(5, request_id="a"))


def test_adapters_beyond_the_cap_wait_and_others_pass(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_loras=1)
    for lora in ("x", "y", "x", None):
        scheduler.add_request(new_request(5, lora=lora, max_tokens=2))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 5, "c": 5, "d": 5}
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1, "c": 1, "d": 1}
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 5}


def test_skipped_requests_return_to_the_head_in_order(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_grammars: Callable[..., Any]
) -> None:
    scheduler = new_scheduler(grammars=new_grammars(), max_num_seqs=2)
    for grammar in ("json", None, "json", None, "json", None):
        scheduler.add_request(new_request(5, structured_output=grammar))
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 5, "d": 5}
    assert [request.request_id for request in scheduler.state.waiting] == ["a", "c", "e", "f"]
