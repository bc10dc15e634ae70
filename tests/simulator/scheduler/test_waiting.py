"""Requests that wait: each is matched against the caches at its turn, and keeps its place until it has one."""

from __future__ import annotations

import pytest

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.connector import ConnectorMatch
from tests.support.scheduler_fakes import Connectors, Requests, Run, Schedulers

PREFIX = list(range(16))


def test_what_was_computed_meanwhile_is_found_at_the_turn(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(max_num_seqs=1)
    scheduler.add_request(new_request([*PREFIX, 500], max_tokens=1))
    scheduler.add_request(new_request([*PREFIX, 501]))
    run(scheduler)
    assert run(scheduler)[0].num_scheduled_tokens == {"b": 1}


def test_a_request_that_could_not_be_placed_stays_where_it_was(
    new_scheduler: Schedulers, new_request: Requests, run: Run
) -> None:
    scheduler = new_scheduler(total_gpu_blocks=7)
    scheduler.add_request(new_request(14))
    run(scheduler)
    for length in (12, 4, 4):
        scheduler.add_request(new_request(length))
    for _ in range(2):
        run(scheduler)
        assert [request.request_id for request in scheduler.state.waiting] == ["b", "c", "d"]


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
    assert [request.request_id for request in scheduler.state.waiting] == ["a", "b", "c"]
