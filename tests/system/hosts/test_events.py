"""The live events of a real gateway about swaps and queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.operated_gateway import OperatedGateway, Serve, Stage, table

Event = tuple[str, dict[str, Any]]


@contextmanager
def watching(gateway: OperatedGateway) -> Iterator[Iterator[Event]]:
    """The events of a gateway, the first snapshot already among them."""
    with gateway.http.stream("GET", "/api/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[Event]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def until(events: Iterator[Event], wanted: str) -> list[Event]:
    """Read on to the next event of that name, which comes last."""
    told = []
    for event in events:
        told.append(event)
        if event[0] == wanted:
            return told
    raise AssertionError(f"the events ended without {wanted}: {told}")


def test_a_swap_sends_an_event_for_each_step(serve: Serve) -> None:
    gateway = serve(table("a") + table("b"))
    gateway.operate("/api/models/a/load")
    with watching(gateway) as events:
        [(_, snapshot)] = until(events, "snapshot")
        assert {each["replica"]: each["state"] for each in snapshot["replicas"]} == {"a@a": "ready", "b@b": "stopped"}
        gateway.operate("/api/models/b/load")
        told = until(events, "swap_done")
    assert [(name, facts.get("replica") or facts["target"], facts.get("state")) for name, facts in told] == [
        ("swap_started", "b@b", None),
        ("replica_state", "a@a", "stopping"),
        ("replica_state", "a@a", "stopped"),
        ("replica_state", "b@b", "starting"),
        ("replica_state", "b@b", "ready"),
        ("swap_done", "b@b", None),
    ]
    assert told[0][1]["evict"] == ["a@a"]
    assert told[-1][1]["error"] is None


def test_events_can_be_read_later(serve: Serve) -> None:
    gateway = serve(table("a", preload="true"))
    gateway.operate("/api/models/a/load")
    events = past(gateway)
    assert "swap_started" in events[: events.index("gateway_started")], "the events of this run"
    assert "swap_done" in past(gateway, since="1m", limit="3")
    assert gateway.http.get("/api/events/past?limit=0").status_code == 400


def past(gateway: OperatedGateway, **query: str) -> list[str]:
    """The names of events that happened, newest first."""
    answer = gateway.http.get("/api/events/past", params=query)
    return [each["event"] for each in answer.json()["events"]]


def test_a_failed_load_sends_its_reason(serve: Serve) -> None:
    gateway = serve('[models.a]\ncommand = "false ${port}"\n')
    with watching(gateway) as events:
        gateway.operate("/api/models/a/load")
        _, done = until(events, "swap_done")[-1]
    assert "ended with status 1" in done["error"]


def test_changes_of_queue_positions_are_sent(serve: Serve, stage: Stage, next_stage: Stage) -> None:
    gateway = serve(stage.table("a") + next_stage.table("b"))
    seen: dict[str, list[tuple[str, int | None]]] = {"a": [], "b": []}
    with watching(gateway) as events:
        answers = [gateway.asking("a")]
        gateway.until_waiting(a="loading")
        answers.append(gateway.asking("b"))
        models = {}
        finished = 0
        for name, facts in events:
            if name == "request_routed":
                models[facts["id"]] = facts["model"]
            elif name == "request_phases":
                for each in facts["requests"]:
                    seen[models[each["id"]]].append((each["phase"], each["position"]))
                if seen["b"]:
                    stage.open()
                if ("loading", 0) in seen["b"]:
                    next_stage.open()
            elif name == "request_finished":
                assert facts["status"] == 200
                finished += 1
            if finished == 2:
                break
    assert [answer.result().status_code for answer in answers] == [200, 200]
    assert seen["a"][0] == ("loading", 0)
    assert seen["b"][0] == ("queued", 1)


def test_a_new_watcher_gets_a_snapshot(serve: Serve) -> None:
    gateway = serve(table("a"))
    for _ in range(2):
        with watching(gateway) as events:
            until(events, "snapshot")
    with watching(gateway) as events:
        assert until(events, "snapshot")[-1][1]["why"] == "connected"


def test_keys_guard_the_events(serve: Serve) -> None:
    keys = '[[auth.keys]]\nname = "op"\nkey = "k-admin"\nadmin = true\n[[auth.keys]]\nname = "u"\nkey = "k-user"\n'
    gateway = serve(keys + table("a"))
    assert gateway.http.get("/api/events", headers={"x-api-key": "wrong"}).status_code == 401
    assert gateway.http.get("/api/events", headers={"x-api-key": "k-user"}).status_code == 403
    with watching(gateway) as events:
        until(events, "snapshot")
