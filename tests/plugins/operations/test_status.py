"""What ``enginehouse status`` shows of a gateway's answer."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse_operations.status import StatusAnswer, backend_table

BACKEND = {
    "url": "http://127.0.0.1:9",
    "priority": 0,
    "role": "neutral",
    "host": "local",
    "health": "healthy",
    "last_error": None,
    "last_error_at": None,
    "draining": False,
    "pending": 0,
    "avg_latency_ms": 0.0,
}


def shown(backend: dict[str, Any], **states: str) -> list[str]:
    """The row of ``backend``, whose replicas have these states by model."""
    backends = [{**BACKEND, "name": "b", "driver": "d", **backend, "models": list(states)}]
    replicas = [{"backend": "b", "model": model, "state": state} for model, state in states.items()]
    answer = {"version": "0", "strategy": "smart", "uptime_s": 1, "requests": 0, "backends": backends}
    table = backend_table(msgspec.convert({**answer, "replicas": replicas}, StatusAnswer, strict=False))
    return [str(next(iter(column.cells))) for column in table.columns]


def test_a_server_that_loads_models_shows_which_ones_it_has_not_loaded() -> None:
    row = shown({"state": "ready"}, a="ready", b="stopped", c="starting")
    assert row[2] == "healthy"
    assert row[-1] == "a\nb (stopped)\nc (starting)"


def test_the_state_of_a_launched_engine_is_shown_once() -> None:
    row = shown({"state": "stopped"}, a="stopped")
    assert (row[2], row[-1]) == ("stopped", "a")
