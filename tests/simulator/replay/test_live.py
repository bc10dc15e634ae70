"""The same requests through the real gateway and through its decisions on a virtual clock: the same backends."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginehouse import VirtualSettings
from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.replay.gateway_replay import PATH, GatewayReplay, Setting
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest, prompt_of
from tests.support import plain_httpx
from tests.support.waiting import within

LONG = 6000
"""Tokens of an answer that outlives the test: at 100 ms each, ten minutes."""
SHORT = 1
ORDER = [LONG, LONG, SHORT, LONG, SHORT, SHORT, LONG, LONG, SHORT, LONG, LONG, SHORT, LONG, LONG, LONG, LONG]
TRACE = [
    TraceRequest(arrival=10.0 * number, input_length=20 + number, output_length=output, model="m")
    for number, output in enumerate(ORDER)
]
CONFIG = """
[backends.a]
driver = "sim"
url = "{}"
priority = 1
[backends.b]
driver = "sim"
url = "{}"
[backends.c]
driver = "sim"
url = "{}"
[routing]
strategy = "{}"
[routing.weights]
priority = 50
load = 50
latency = 0
[plugins.random]
seed = 7
"""


def body_of(number: int) -> dict[str, Any]:
    request = TRACE[number]
    asked: dict[str, Any] = {"model": request.model, "prompt": prompt_of(request, number), "stream": True}
    return asked | {"max_tokens": request.output_length, "ignore_eos": True}


async def decided(client: httpx.AsyncClient) -> dict[int, str]:
    """The backend of each request that was routed."""
    decisions = (await client.get("/api/decisions")).json()["decisions"]
    return {int(each["request_id"]): each["chosen"].removeprefix("m@") for each in decisions}


async def send_in_turn(client: httpx.AsyncClient) -> dict[int, str]:
    """Send each request once the one before was routed and, if it is short, answered. The backend of each."""
    asking = []
    for number, request in enumerate(TRACE):
        sent = client.post(PATH, json=body_of(number), headers={"x-request-id": str(number)})
        asking.append(asyncio.create_task(sent))
        while number not in await decided(client):  # noqa: ASYNC110 - the gateway has no event for it
            await asyncio.sleep(0)
        if request.output_length == SHORT:
            assert (await within(asking[-1])).status_code == 200
    taken = await decided(client)
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    return taken


@pytest.mark.parametrize(("strategy", "limit"), [("smart", 3), ("round_robin", 4), ("random", 20)])
async def test_simulated_decisions_are_the_live_ones(strategy: str, limit: int, tmp_path: Path) -> None:
    """Of smart's last requests, two wait in queues, because every engine is full."""
    with ExitStack() as stack:
        flags: dict[str, Any] = {"ttft": "0", "tpot": "100ms", "max_num_seqs": limit}
        engines = [stack.enter_context(SimEngine("m", **flags)) for _ in range(3)]
        config = CONFIG.format(*(engine.url for engine in engines), strategy)
        gateway = stack.enter_context(RunningGateway(config))
        gateway.until(lambda status: all(each["models"] == ["m"] for each in status["backends"]))
        async with plain_httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            taken = await send_in_turn(client)
        gateway.kill()
    file = tmp_path / "gateway.toml"
    file.write_text(config)
    core = CoreSettings(ttft=0.0, tpot=0.1, constants=SchedulerConstants(max_num_seqs=limit))
    places: dict[int, str] = {}
    played = GatewayReplay(TRACE, Setting(gateway=VirtualSettings(file=file), core=core, model="m"), places.__setitem__)
    await asyncio.to_thread(played.run)  # it has an event loop of its own
    assert places == taken
    assert len(set(taken.values())) == 3
