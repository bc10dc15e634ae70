"""The gauges of each second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from enginehouse.app.sampling import gauges
from enginehouse.domain.replica import Candidate, Load, Reason, Route, Snapshot
from enginehouse.domain.ticket import Ticket


def live(model: str, ticket: Ticket | None = None, position: int | None = None, *, backend: str = "") -> Any:
    chosen = Candidate(model=model, backend=backend, replica=f"{model}@{backend}")
    route = Route(model, chosen, Reason.MATCH, (model,)) if backend else None
    return SimpleNamespace(model=model, ticket=ticket, position=position, route=route)


def test_requests_that_wait_in_a_queue_or_a_room_of_any_process_are_counted() -> None:
    in_queue, in_room, granted = (Ticket(id=str(number), replica="a@1") for number in range(3))
    fleet = SimpleNamespace(snapshot=Snapshot())
    context = SimpleNamespace(waiting_room=SimpleNamespace(waiting=lambda: {in_room: None}), fleet=fleet, upstreams={})
    requests = [
        live("a", in_queue, backend="1"),
        live("a", in_room),
        live("b", position=0),  # in the room of a worker
        live("b", granted, backend="2"),
        live("b"),
    ]
    engines = SimpleNamespace(waiting=lambda: {in_queue: None}, memory=list, gpus=list)
    found = [*gauges(cast(Any, SimpleNamespace(live=requests, context=context)), cast(Any, engines))]
    assert sorted(found) == [
        ("queue", "", "", 3),
        ("queue", "backend", "1", 1),
        ("queue", "model", "a", 2),
        ("queue", "model", "b", 1),
    ]


def test_an_idle_engine_that_reports_its_cache_uses_none_of_it_and_of_others_nothing_is_known() -> None:
    idle, silent, cacheless = Load(), Load(), Load()
    idle.report(waiting=0, kv_usage=0.0, cache_tokens=1000, at=1.0)
    cacheless.report(waiting=0, kv_usage=0.0, cache_tokens=0, at=1.0)
    loads = {"idle": idle, "silent": silent, "cacheless": cacheless}
    backends = [SimpleNamespace(name=name, models=("m",)) for name in loads]
    fleet = SimpleNamespace(snapshot=Snapshot(), load=loads.__getitem__, backends=lambda: backends)
    context = SimpleNamespace(waiting_room=SimpleNamespace(waiting=dict), fleet=fleet, upstreams=loads)
    engines = SimpleNamespace(waiting=dict, memory=list, gpus=list)
    found = [*gauges(cast(Any, SimpleNamespace(live=[], context=context)), cast(Any, engines))]
    assert found == [("kv_usage", "backend", "idle", 0.0), ("kv_usage", "", "", 0.0), ("kv_usage", "model", "m", 0.0)]
