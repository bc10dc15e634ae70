"""The connector and its worker, each for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enginehouse_sim.simulator.domain.outputs import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.connector import KvConnector, KvLoad, KvSource, TransferWorker

New = Callable[..., RequestState]


class FakeSource(KvSource):
    """A source with ``tokens`` for every request, a second for each; ``calls`` are the calls to it."""

    def __init__(self, tokens: int) -> None:
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


def test_the_first_source_that_has_anything_serves(new_request: New) -> None:
    empty, first, second = FakeSource(0), FakeSource(8), FakeSource(100)
    connector, request = KvConnector([empty, first, second]), new_request(20)
    assert connector.get_num_new_matched_tokens(request, 4) == (4, True)
    connector.update_state_after_alloc(request, (1, 2), 4)
    assert (empty.calls, first.calls, second.calls) == (["claim 0"], ["claim 4"], ["claim 0"])
    assert connector.build_connector_metadata(step({})) == [KvLoad(request.request_id, 4, 4.0)]
    assert connector.build_connector_metadata(step({})) == []


def test_the_source_is_notified_when_a_load_is_delivered(new_request: New) -> None:
    source = FakeSource(8)
    connector, request = KvConnector([source]), new_request(20)
    connector.get_num_new_matched_tokens(request, 0)
    connector.update_state_after_alloc(request, (1, 2), 8)
    connector.build_connector_metadata(step({}))
    assert source.calls == ["claim 8"]
    connector.update_connector_output(outcome(request.request_id))
    assert source.calls == ["claim 8", "delivered"]


def test_loads_arrive_in_their_time() -> None:
    worker = TransferWorker()
    worker.begin_step([KvLoad("b", 1, 5.0), KvLoad("c", 1, 3.0)], 10.0)
    assert worker.next_arrival == 13.0
    arrived = []
    for now in (12.9, 13.0, 15.0, 16.0):
        result = outcome()
        worker.end_step(now, result)
        arrived.append(list(result.kv_connector_finished_recving))
    assert arrived == [[], ["c"], ["b"], []]
    assert worker.next_arrival is None


def test_nothing_is_loaded_for_a_request_that_needs_nothing(new_request: New) -> None:
    source = FakeSource(8)
    connector, request = KvConnector([source]), new_request(20)
    assert connector.get_num_new_matched_tokens(request, 8) == (0, False)
    connector.update_state_after_alloc(request, (1, 2), 0)
    assert connector.build_connector_metadata(step({})) == []
    assert source.calls == ["claim 0"]


def test_blocks_of_a_request_that_ends_are_kept_while_something_is_loaded_into_them(new_request: New) -> None:
    source = FakeSource(8)
    connector, request = KvConnector([source]), new_request(20)
    connector.get_num_new_matched_tokens(request, 0)
    connector.update_state_after_alloc(request, (1, 2), 8)
    assert connector.request_finished(request, (1, 2)) == (True, None)
    assert source.calls == ["claim 8"]
    connector.update_connector_output(outcome(request.request_id))
    assert source.calls == ["claim 8", "delivered"]


def test_all_sources_hear_of_a_request_that_ends(new_request: New) -> None:
    sources = [FakeSource(0), FakeSource(8)]
    connector, request = KvConnector(sources), new_request(20)
    connector.get_num_new_matched_tokens(request, 0)
    assert connector.request_finished(request, ()) == (False, None)
    assert [source.calls for source in sources] == [["release"], ["release"]]


def test_loads_that_arrive_together_are_reported_in_order_of_their_begin() -> None:
    worker, result = TransferWorker(), outcome()
    worker.begin_step([KvLoad("b", 1, 1.0), KvLoad("a", 1, 1.0)], 0.0)
    worker.end_step(1.0, result)
    assert result.kv_connector_finished_recving == ["b", "a"]
