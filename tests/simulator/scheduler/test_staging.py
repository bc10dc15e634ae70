from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.connector import ConnectorMatch
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.scheduler.staging import LoadKind
from enginehouse_sim.simulator.scheduler.staging_thread import StagingThread
from enginehouse_sim.simulator.scheduler.update import stats
from tests.support.scheduler_fakes import Connectors, Requests, Run, Schedulers

PREFIX = list(range(16))


@pytest.fixture
def warm(new_scheduler: Schedulers, new_request: Requests, run: Run) -> Callable[..., BatchScheduler]:
    """A scheduler with one running request, and the blocks of ``PREFIX`` cached without references."""

    def make(**parts: Any) -> BatchScheduler:
        scheduler = new_scheduler(**{"max_model_len": 1000, **parts})
        scheduler.add_request(new_request([*PREFIX, 99], request_id="past", max_tokens=1))
        run(scheduler)
        scheduler.add_request(new_request(4, request_id="busy"))
        run(scheduler)
        return scheduler

    return make


def pinned(scheduler: BatchScheduler) -> list[str]:
    return [delta.request_id for delta in scheduler.staging.deltas()]


def test_a_prepared_delta_says_what_was_found_and_cannot_be_changed(
    warm: Callable[..., BatchScheduler], new_request: Requests, new_connector: Connectors
) -> None:
    scheduler = warm(connector=new_connector(a=24, load_async=True))
    scheduler.add_request(new_request([*PREFIX, *range(500, 520)]))
    scheduler.staging.prepare()
    (delta,) = scheduler.staging.deltas()
    assert (delta.request_id, delta.computed.num_tokens, len(delta.computed.block_ids)) == ("a", 16, 4)
    assert (delta.num_external_tokens, delta.load_kind) == (8, LoadKind.ASYNC)
    with pytest.raises(AttributeError):
        delta.num_external_tokens = 0  # type: ignore[misc]


@pytest.mark.parametrize("external", [0, 24])
def test_a_prepared_request_is_placed_exactly_like_one_matched_at_its_turn(
    warm: Callable[..., BatchScheduler],
    new_request: Requests,
    new_connector: Connectors,
    external: int,
) -> None:
    steps = []
    for prepare in (False, True):
        scheduler = warm(connector=new_connector(r=external))
        scheduler.add_request(new_request([*PREFIX, *range(500, 520)], request_id="r"))
        if prepare:
            scheduler.staging.prepare()
            assert pinned(scheduler) == ["r"]
        steps.append(msgspec.json.encode(scheduler.schedule()))
    assert steps[0] == steps[1]


@pytest.mark.parametrize(("prepare", "found"), [(True, 16), (False, 0)])
def test_pinned_blocks_are_not_evicted_between_match_and_turn(
    warm: Callable[..., BatchScheduler], new_request: Requests, prepare: bool, found: int
) -> None:
    scheduler = warm()
    request = new_request([*PREFIX, 500])
    scheduler.add_request(request)
    if prepare:
        scheduler.staging.prepare()
    kv_cache = scheduler.state.kv_cache
    all_that_is_free = 4 * kv_cache.num_free_blocks
    assert kv_cache.allocate_slots(new_request(all_that_is_free), all_that_is_free) is not None
    assert kv_cache.get_computed_blocks(request).num_tokens == found


def test_pins_stay_within_their_share_and_a_block_of_several_requests_counts_once(
    warm: Callable[..., BatchScheduler], new_request: Requests
) -> None:
    scheduler = warm(max_num_seqs=1, staging_block_share=0.045)
    for tail in (500, 501):
        scheduler.add_request(new_request([*PREFIX, tail]))
    scheduler.staging.prepare()
    assert pinned(scheduler) == ["a", "b"]
    assert scheduler.staging.num_pinned_blocks == 4
    assert scheduler.state.kv_cache.num_free_blocks == 100 - 2 - 4 + 1


def test_a_match_beyond_the_share_is_not_prepared_but_still_found_at_its_turn(
    warm: Callable[..., BatchScheduler], new_request: Requests
) -> None:
    scheduler = warm(staging_block_share=0.03)
    scheduler.add_request(new_request([*PREFIX, 500]))
    scheduler.staging.prepare()
    assert pinned(scheduler) == []
    assert scheduler.schedule().num_scheduled_tokens["a"] == 1


def test_only_the_first_requests_are_prepared(warm: Callable[..., BatchScheduler], new_request: Requests) -> None:
    scheduler = warm(staging_depth=2)
    for _ in range(4):
        scheduler.add_request(new_request(8))
    scheduler.staging.prepare()
    assert pinned(scheduler) == ["a", "b"]


def test_what_was_computed_since_the_match_is_found_at_the_turn(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_seqs=1)
    scheduler.add_request(new_request([*PREFIX, 500], max_tokens=1))
    scheduler.add_request(new_request([*PREFIX, 501]))
    scheduler.staging.prepare()
    assert [delta.computed.num_tokens for delta in scheduler.staging.deltas()] == [0, 0]
    run(scheduler)
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 1}


def test_a_placed_request_leaves_no_pin(warm: Callable[..., BatchScheduler], new_request: Requests, run: Run) -> None:
    scheduler = warm()
    scheduler.add_request(new_request([*PREFIX, 500]))
    scheduler.staging.prepare()
    run(scheduler)
    assert scheduler.staging.num_pinned_blocks == 0
    scheduler.finish_requests(["a", "busy"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.state.kv_cache.num_free_blocks == 100


def test_an_aborted_request_leaves_no_pin(warm: Callable[..., BatchScheduler], new_request: Requests) -> None:
    scheduler = warm()
    scheduler.add_request(new_request([*PREFIX, 500]))
    scheduler.staging.prepare()
    scheduler.finish_requests(["a", "busy"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.state.kv_cache.num_free_blocks == 100


def test_a_match_is_taken_again_if_the_connector_lost_what_it_had(
    warm: Callable[..., BatchScheduler], new_request: Requests, new_connector: Connectors
) -> None:
    connector = new_connector(a=24)
    scheduler = warm(connector=connector)
    scheduler.add_request(new_request([*PREFIX, *range(500, 520)]))
    scheduler.staging.prepare()
    connector.matches["a"] = 0
    connector.version += 1
    assert scheduler.schedule().num_scheduled_tokens["a"] == 20


def test_a_match_that_the_connector_knew_in_time_is_not_asked_for_again(
    warm: Callable[..., BatchScheduler], new_request: Requests, new_connector: Connectors
) -> None:
    connector = new_connector(a=24)
    scheduler = warm(connector=connector)
    scheduler.add_request(new_request([*PREFIX, *range(500, 520)]))
    scheduler.staging.prepare()
    asked = len(connector.asked)
    scheduler.staging.prepare()
    scheduler.schedule()
    assert len(connector.asked) == asked


def test_pins_never_cost_a_running_request_its_blocks(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7, max_num_seqs=1, staging_block_share=1.0)
    scheduler.add_request(new_request([*PREFIX, 99], max_tokens=1))
    run(scheduler)
    scheduler.add_request(new_request(7))
    scheduler.add_request(new_request([*PREFIX, 500]))
    run(scheduler)
    scheduler.staging.prepare()
    assert scheduler.staging.num_pinned_blocks == 4
    for _ in range(8):
        step, _ = run(scheduler)
        assert not step.preempted_req_ids
        scheduler.staging.prepare()
    assert scheduler.staging.num_pinned_blocks == 0
    assert stats(scheduler.state).num_preemptions == 0


def test_pins_of_others_never_keep_the_head_from_its_place(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7, staging_block_share=1.0)
    scheduler.add_request(new_request([*PREFIX, 99], max_tokens=1))
    run(scheduler)
    scheduler.add_request(new_request(20))
    scheduler.add_request(new_request([*PREFIX, 500]))
    scheduler.staging.prepare()
    assert scheduler.staging.num_pinned_blocks == 4
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 20}


def test_a_request_that_could_not_be_placed_stays_where_it_was(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7)
    scheduler.add_request(new_request(14))
    run(scheduler)
    for length in (12, 4, 4):
        scheduler.add_request(new_request(length))
    for _ in range(2):
        scheduler.staging.prepare()
        run(scheduler)
        assert [request.request_id for request in scheduler.staging] == ["b", "c", "d"]


def test_nothing_is_lost_if_a_match_fails(
    new_scheduler: Schedulers, new_request: Requests, new_connector: Connectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Exception): ...

    connector = new_connector(a=None)
    scheduler = new_scheduler(connector=connector)
    for _ in range(3):
        scheduler.add_request(new_request(8))
    ask = connector.get_num_new_matched_tokens

    def broken(request: RequestState, num_computed_tokens: int) -> ConnectorMatch:
        if request.request_id == "b":
            raise Broken
        return ask(request, num_computed_tokens)

    monkeypatch.setattr(connector, "get_num_new_matched_tokens", broken)
    with pytest.raises(Broken):
        scheduler.schedule()
    assert [request.request_id for request in scheduler.staging] == ["a", "b", "c"]


def test_a_thread_prepares_as_the_worker_does(warm: Callable[..., BatchScheduler], new_request: Requests) -> None:
    scheduler = warm(max_num_seqs=1)
    lock = threading.Lock()
    thread = StagingThread(scheduler.staging, lock)
    with lock:
        scheduler.add_request(new_request([*PREFIX, 500]))
    thread.wake()
    deadline = time.monotonic() + 10
    while not pinned(scheduler) and time.monotonic() < deadline:
        thread.wake()
    thread.stop()
    assert pinned(scheduler) == ["a"]
    assert scheduler.staging.num_pinned_blocks == 4
