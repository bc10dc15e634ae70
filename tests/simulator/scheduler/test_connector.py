from __future__ import annotations

import pytest

from enginehouse_sim.simulator.domain.request import RequestStatus
from tests.support.scheduler_fakes import Connectors, Requests, Run, Schedulers


def test_tokens_loaded_within_the_step_need_no_computing(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    connector = new_connector(a=16)
    scheduler = new_scheduler(connector=connector)
    scheduler.add_request(new_request(20))
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"a": 4}
    assert step.new_requests[0].num_computed_tokens == 16
    assert connector.allocated == [("a", tuple(step.new_requests[0].block_ids), 16)]
    assert step.kv_connector_metadata == {"tokens": 4}


def test_the_last_token_is_computed_here_even_if_all_can_be_had(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    scheduler = new_scheduler(connector=new_connector(a=20))
    scheduler.add_request(new_request(20))
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1}


def test_a_request_whose_match_is_not_known_yet_is_skipped(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    connector = new_connector(a=None)
    scheduler = new_scheduler(connector=connector)
    for _ in range(2):
        scheduler.add_request(new_request(20))
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 20}
    connector.matches["a"] = 8
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 1, "a": 12}


def test_a_load_between_steps_holds_blocks_and_delays_no_request(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    connector = new_connector(load_async=True, a=16)
    scheduler = new_scheduler(connector=connector)
    request = new_request(20)
    scheduler.add_request(request)
    scheduler.add_request(new_request(8))
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 8}
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    assert len(scheduler.state.kv_cache.get_block_ids("a")) == 4
    assert run(scheduler, kv_connector_finished_recving=["a"])[0].num_scheduled_tokens == {"b": 1}
    step, _ = run(scheduler)
    assert step.num_scheduled_tokens == {"b": 1, "a": 4}
    assert step.new_requests[0].num_computed_tokens == 16
    assert request.num_cached_tokens == 16


def test_what_was_loaded_can_be_found_by_others_only_once_it_arrived(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    scheduler = new_scheduler(connector=new_connector(load_async=True, a=16))
    prompt = list(range(20))
    scheduler.add_request(new_request(prompt))
    run(scheduler)
    twin = new_request([*prompt[:17], 900])
    assert scheduler.state.kv_cache.get_computed_blocks(twin).num_tokens == 0
    run(scheduler, kv_connector_finished_recving=["a"])
    run(scheduler)
    assert scheduler.state.kv_cache.get_computed_blocks(twin).num_tokens == 16


def test_a_load_of_the_whole_prompt_leaves_its_last_token_to_compute(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    scheduler = new_scheduler(connector=new_connector(load_async=True, a=20))
    scheduler.add_request(new_request(20))
    run(scheduler, kv_connector_finished_recving=["a"])
    assert run(scheduler)[0].num_scheduled_tokens == {"a": 1}


def test_requests_that_load_never_wait_for_blocks_of_each_other(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    scheduler = new_scheduler(connector=new_connector(load_async=True, a=8, b=8), total_gpu_blocks=9)
    for _ in range(2):
        scheduler.add_request(new_request(28, max_tokens=2))
    run(scheduler)
    assert [len(scheduler.state.kv_cache.get_block_ids(name)) for name in "ab"] == [2, 0]
    run(scheduler, kv_connector_finished_recving=["a"])
    for _ in range(2):
        run(scheduler)
    run(scheduler)
    run(scheduler, kv_connector_finished_recving=["b"])
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 20}


def test_a_resumed_request_that_loads_stays_a_resumed_one(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    connector = new_connector(load_async=True)
    scheduler = new_scheduler(connector=connector, enable_prefix_caching=False)
    scheduler.add_request(new_request(20))
    run(scheduler)
    scheduler.pause("a", keep_blocks=False)
    scheduler.resume("a")
    connector.matches["a"] = 16
    run(scheduler)
    run(scheduler, kv_connector_finished_recving=["a"])
    step, _ = run(scheduler)
    assert step.cached_requests[0].resumed_from_preemption
    assert step.num_scheduled_tokens == {"a": 5}


def test_blocks_being_sent_are_freed_when_the_send_is_complete(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    connector = new_connector(delays=["a"])
    scheduler = new_scheduler(connector=connector)
    scheduler.add_request(new_request(8, max_tokens=1))
    step, outputs = run(scheduler)
    assert outputs[0].kv_transfer_params == {"remote_block_ids": list(step.new_requests[0].block_ids)}
    assert scheduler.state.kv_cache.num_free_blocks == 98
    run(scheduler, kv_connector_finished_sending=["a"])
    assert scheduler.state.kv_cache.num_free_blocks == 100


@pytest.mark.parametrize("delays", [[], ["a"]])
def test_a_request_aborted_while_it_loads_gives_its_blocks_back(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors, delays: list[str]
) -> None:
    scheduler = new_scheduler(connector=new_connector(load_async=True, delays=delays, a=16))
    scheduler.add_request(new_request(20))
    run(scheduler)
    scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.state.kv_cache.num_free_blocks == (96 if delays else 100)
    run(scheduler, kv_connector_finished_recving=["a"])
    assert scheduler.state.kv_cache.num_free_blocks == 100


def test_the_connector_sees_every_step_and_every_end(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    connector = new_connector()
    scheduler = new_scheduler(connector=connector)
    scheduler.add_request(new_request(8, max_tokens=2))
    run(scheduler)
    run(scheduler)
    assert connector.built_for == [0, 1]
    assert connector.finished == ["a"]


def test_what_came_from_outside_is_counted(
    new_scheduler: Schedulers, new_request: Requests, run: Run, new_connector: Connectors
) -> None:
    scheduler = new_scheduler(connector=new_connector(a=12))
    scheduler.add_request(new_request(20))
    run(scheduler)
    counters = scheduler.state.totals
    assert (counters.external_prefix_cache_queries, counters.external_prefix_cache_hits) == (20, 12)
