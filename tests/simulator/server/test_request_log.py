from __future__ import annotations

from typing import Any

import pytest

from enginehouse_sim.simulator.server import application
from enginehouse_sim.simulator.server.application import RequestLog
from enginehouse_sim.simulator.server.http import Call


def log(bodies: list[bytes]) -> list[Any]:
    requests = RequestLog()
    for body in bodies:
        call = Call("POST", "/", [], body)
        with requests.record(call):
            pass
    return [seen["body"] for seen in requests.listing()]


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_MOST_REQUESTS", 2)
    assert log([b"1", b"2", b"3"]) == ["2", "3"]


def test_the_oldest_go_when_they_are_too_large_but_the_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_MOST_BYTES", 5)
    assert log([b"1", b"22", b"333"]) == ["22", "333"]
    assert log([b"1", b"4444444"]) == ["4444444"]
