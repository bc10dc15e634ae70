"""The connector and its worker, each for itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import pytest

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.domain.steps import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.external_store import ExternalStore
from enginehouse_sim.simulator.kv.source import KvSource
from enginehouse_sim.simulator.kv.source_connector import SourceConnector
from enginehouse_sim.simulator.kv.transfer_worker import KvLoad, StepTransfers, TransferWorker

New = Callable[..., RequestState]
HASHER = BlockHasher(4)


class FakeSource(KvSource):
    """A source with ``tokens`` for every request, a second for each; ``calls`` are the calls to it."""

    def __init__(self, tokens: int, *, load_async: bool = True) -> None:
        self.load_async = load_async
        self.tokens = tokens
        self.calls: list[str] = []

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        return max(0, self.tokens - num_computed_tokens)

    def seconds(self, num_tokens: int) -> float:
        return float(num_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        self.calls.append(f"claim {num_tokens}")

    def delivered(self, request_id: str) -> None:
        self.calls.append("delivered")

    def release(self, request: RequestState) -> None:
        self.calls.append("release")


def step(scheduled: Mapping[str, int]) -> SchedulerOutput:
    return SchedulerOutput(
        step=0,
        new_requests=[],
        cached_requests=[],
        num_scheduled_tokens=dict(scheduled),
        total_num_scheduled_tokens=sum(scheduled.values()),
    )


def outcome(*arrived: str) -> ModelRunnerOutput:
    return ModelRunnerOutput(
        req_ids=(), req_id_to_index={}, sampled_token_ids=(), kv_connector_finished_recving=arrived
    )


@pytest.mark.parametrize("load_async", [True, False])
def test_the_first_source_that_has_anything_serves(new_request: New, load_async: bool) -> None:
    empty, first, second = FakeSource(0), FakeSource(8, load_async=load_async), FakeSource(100)
    connector, request = SourceConnector(HASHER, [empty, first, second]), new_request(20)
    assert connector.get_num_new_matched_tokens(request, 4) == (4, load_async)
    connector.update_state_after_alloc(request, (1, 2), 4)
    assert (empty.calls, first.calls, second.calls) == (["claim 0"], ["claim 4"], ["claim 0"])
    transfers = connector.build_connector_metadata(step({}))
    assert transfers.loads == [KvLoad(request.request_id, 4, 4.0, load_async)]
    assert connector.build_connector_metadata(step({})).loads == []


def test_nothing_is_loaded_for_a_request_that_needs_nothing(new_request: New) -> None:
    source = FakeSource(8)
    connector, request = SourceConnector(HASHER, [source]), new_request(20)
    assert connector.get_num_new_matched_tokens(request, 8) == (0, False)
    connector.update_state_after_alloc(request, (1, 2), 0)
    assert connector.build_connector_metadata(step({})).loads == []
    assert source.calls == ["claim 0"]


def test_the_source_is_notified_when_a_load_is_delivered(new_request: New) -> None:
    late, early = FakeSource(8), FakeSource(8, load_async=False)
    for source, calls in ((late, ["claim 8"]), (early, ["claim 8", "delivered"])):
        connector, request = SourceConnector(HASHER, [source]), new_request(20)
        connector.get_num_new_matched_tokens(request, 0)
        connector.update_state_after_alloc(request, (1, 2), 8)
        connector.build_connector_metadata(step({}))
        assert source.calls == calls
        if source is late:
            connector.update_connector_output(outcome(request.request_id))
            assert source.calls == [*calls, "delivered"]


def test_blocks_of_a_request_that_ends_are_kept_while_something_is_loaded_into_them(new_request: New) -> None:
    source = FakeSource(8)
    connector, request = SourceConnector(HASHER, [source]), new_request(20)
    connector.get_num_new_matched_tokens(request, 0)
    connector.update_state_after_alloc(request, (1, 2), 8)
    assert connector.request_finished(request, (1, 2)) == (True, None)
    assert source.calls == ["claim 8"]
    connector.update_connector_output(outcome(request.request_id))
    assert source.calls == ["claim 8", "delivered"]


def test_all_sources_hear_of_a_request_that_ends(new_request: New) -> None:
    sources = [FakeSource(0), FakeSource(8)]
    connector, request = SourceConnector(HASHER, sources), new_request(20)
    connector.get_num_new_matched_tokens(request, 0)
    assert connector.request_finished(request, ()) == (False, None)
    assert [source.calls for source in sources] == [["release"], ["release"]]


def test_each_block_is_saved_once_when_a_step_fills_it(new_request: New) -> None:
    connector, request = SourceConnector(HASHER, saves=True), new_request(10, request_id="x")
    connector.update_state_after_alloc(request, (1, 2, 3), 0)
    hashes = HASHER.of_tokens(range(12))
    saved = []
    for scheduled in (5, 5, 1, 1):
        saved.append(connector.build_connector_metadata(step({"x": scheduled})).saves)
        request.num_computed_tokens += scheduled
        if request.num_computed_tokens >= 10:
            request.append(request.num_computed_tokens)
    assert saved == [[hashes[:1]], [hashes[1:2]], [], [hashes[2:]]]


def test_what_is_computed_again_is_not_saved_again(new_request: New) -> None:
    connector, request = SourceConnector(HASHER, saves=True), new_request(10, request_id="x")
    for _ in range(2):
        connector.update_state_after_alloc(request, (1, 2, 3), 0)
        saves = connector.build_connector_metadata(step({"x": 10})).saves
    assert saves == []


def test_a_request_that_ended_is_removed() -> None:
    connector = SourceConnector(HASHER, saves=True)
    request = RequestState(request_id="x", prompt_token_ids=[1], max_tokens=1)
    before = sys.getrefcount(request)
    connector.update_state_after_alloc(request, (1,), 0)
    connector.request_finished(request, (1,))
    assert sys.getrefcount(request) == before


def test_nothing_is_saved_unless_asked_for(new_request: New) -> None:
    connector, request = SourceConnector(HASHER), new_request(10, request_id="x")
    connector.update_state_after_alloc(request, (1, 2, 3), 0)
    assert connector.build_connector_metadata(step({"x": 10})).saves == ()


def test_loads_within_the_step_make_it_longer_and_others_arrive_in_their_time() -> None:
    worker = TransferWorker()
    loads = [
        KvLoad("a", 1, 2.0, False),
        KvLoad("b", 1, 5.0, True),
        KvLoad("c", 1, 3.0, True),
        KvLoad("d", 1, 1.0, False),
    ]
    assert worker.begin_step(StepTransfers(loads), 10.0) == 3.0
    assert worker.next_arrival == 13.0
    arrived = []
    for now in (12.9, 13.0, 15.0, 16.0):
        result = outcome()
        worker.end_step(StepTransfers(), now, result)
        arrived.append(list(result.kv_connector_finished_recving))
    assert arrived == [[], ["c"], ["b"], []]
    assert worker.next_arrival is None


def test_loads_that_arrive_together_are_reported_in_order_of_their_begin() -> None:
    worker, result = TransferWorker(), outcome()
    worker.begin_step(StepTransfers([KvLoad("b", 1, 1.0, True), KvLoad("a", 1, 1.0, True)]), 0.0)
    worker.end_step(StepTransfers(), 1.0, result)
    assert result.kv_connector_finished_recving == ["b", "a"]


def test_what_a_step_fills_is_in_the_store_when_it_is_over() -> None:
    store, sent = ExternalStore(), ["x"]
    worker, result = TransferWorker(store, lambda: sent), outcome()
    transfers = StepTransfers(saves=[[1, 2], [3]])
    worker.begin_step(transfers, 0.0)
    assert len(store) == 0
    worker.end_step(transfers, 1.0, result)
    assert len(store) == 3
    assert result.kv_connector_finished_sending == ("x",)
