"""An engine that breaks, seen through the application, without sockets."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.server.application import Application
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, LoopClock
from enginehouse_sim.simulator.server.http import Call
from enginehouse_sim.simulator.server.simulation import Settings, Simulation


async def answer(application: Application, method: str, path: str, **body: Any) -> tuple[int, bytes]:
    sent: list[bytes] = []

    class Wire:
        keeps_alive = True

        async def write(self, data: bytes) -> None:
            sent.append(data)

    call = Call(method, path, [], json.dumps({"model": "sim", **body}).encode())
    call.connection = Wire()  # type: ignore[assignment]
    await application.serve(call)
    head, _, whole = b"".join(sent).partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), whole


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failed_engine_reports_it_to_every_client(stream: bool) -> None:
    settings = Settings(core=CoreSettings(ttft=0, tpot=0))
    core = build_core(settings.core)
    steps = iter(range(3))

    def break_after_three(begins_at: float) -> None:
        if next(steps, None) is None:
            raise RuntimeError("out of order")

    core.before_step = break_after_three
    application = Application(Simulation(settings, BatchingEngine(core, LoopClock())))
    assert (await answer(application, "GET", "/health"))[0] == 200
    status, body = await answer(application, "POST", "/v1/completions", prompt="x", stream=stream)
    if stream:
        *events, done = re.findall(r"data: (.*)\n\n", body.decode())
        assert (status, len(events), done) == (200, 3, "[DONE]")
        error = json.loads(events[-1])["error"]
    else:
        error = json.loads(body)["error"]
        assert status == 500
    assert error["message"] == "The engine failed: RuntimeError: out of order"
    assert (await answer(application, "GET", "/health"))[0] == 503
    assert (await answer(application, "POST", "/v1/completions", prompt="x"))[0] == 500
