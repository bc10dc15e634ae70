"""Serves a scenario: a gateway process, engines that are processes, and sockets between them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx
import psutil

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_sim.simulator.replay.faults import FaultKind
from enginehouse_sim.simulator.replay.gateway_replay import PATH
from enginehouse_sim.simulator.replay.traces.prompts import prompt_of
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from tests.simulator.served_and_replayed.scenario import Begin, Counts, Progress, Scenario, Seen, Send, Step, ways_of
from tests.support import plain_httpx

ADMIN = "secret-of-admin"
_AS_ADMIN = {"authorization": f"Bearer {ADMIN}"}
_PATIENCE_S = 60.0
"""Far more than a busy machine needs for one step."""
_COUNTER = re.compile(rf"enginehouse_({'|'.join(Counts._fields)})_total(?:{{.*}})? (\S+)$")


class Served:
    """Takes the steps of a scenario, each once all that the one before leads to has happened."""

    def __init__(self, scenario: Scenario, gateway: RunningGateway, engines: Mapping[str, SimEngine]) -> None:
        self._scenario = scenario
        self._requests = scenario.requests
        self._gateway = gateway
        self._engines = engines
        self._faults: dict[str, FaultKind] = {}
        self._begun: set[int] = set()
        self._ends: dict[int, str] = {}
        self._asking: list[asyncio.Task[None]] = []
        self._counts = Counts()

    async def run(self, expected: Sequence[Progress]) -> Seen:
        """Take all steps. Stops early if the progress after one of them is not as ``expected``."""
        limits = httpx.Limits(max_connections=None)
        async with plain_httpx.AsyncClient(base_url=self._gateway.url, timeout=None, limits=limits) as client:
            for step, progress in zip(self._scenario.steps, expected, strict=True):
                await self._take(step, client)
                if not await self._reached(progress, client):
                    break
            seen = await self._seen(client, await self._read_counts(client))
            await self._clean_up()
        return seen

    async def _clean_up(self) -> None:
        """End what still runs, for the next scenario."""
        for each in self._asking:
            each.cancel()
        for name, kind in self._faults.items():
            await asyncio.to_thread(self._end, name, kind)
        for error in await asyncio.gather(*self._asking, return_exceptions=True):
            if isinstance(error, Exception):
                raise error

    async def _take(self, step: Step, client: httpx.AsyncClient) -> None:
        if isinstance(step, Send):
            number = len(self._asking)
            self._asking.append(asyncio.create_task(self._ask(number, self._requests[number], client)))
        elif isinstance(step, Begin):
            self._faults[step.engine] = step.kind
            await asyncio.to_thread(self._begin, step)
        else:
            await asyncio.to_thread(self._end, step.engine, self._faults.pop(step.engine))

    async def _ask(self, number: int, request: TraceRequest, client: httpx.AsyncClient) -> None:
        body: dict[str, Any] = {"model": request.model, "prompt": prompt_of(request, number), "stream": request.stream}
        body |= {"max_tokens": request.output_length, "ignore_eos": True}
        headers = {"x-request-id": str(number), "authorization": f"Bearer secret-of-{request.key}"}
        answer = bytearray()
        try:
            async with client.stream("POST", PATH, json=body, headers=headers) as response:
                async for piece in response.aiter_bytes():
                    self._begun.add(number)
                    answer += piece
            self._ends[number] = _code(response, answer.decode())
        except httpx.TransportError:
            self._ends[number] = "upstream_error"

    def _begin(self, step: Begin) -> None:
        engine = self._engines.get(step.engine)
        if engine is None:
            self._kill_launched(step.engine)
        elif step.kind is FaultKind.KILL:
            engine.kill()
        else:
            engine.fault({FaultKind.STALL: "hang", FaultKind.REFUSE: "refuse"}[step.kind])

    def _end(self, name: str, kind: FaultKind) -> None:
        engine = self._engines.get(name)
        if engine is None:
            return  # the gateway launches it again
        if kind is FaultKind.KILL:
            engine.start()
        else:
            engine.clear()

    def _kill_launched(self, name: str) -> None:
        """Kill the engine that the gateway has launched for a backend, and wait until the gateway knows."""
        exits = self._gateway.log.count("The engine ended by SIGKILL")
        children = psutil.Process(self._gateway.pid).children(recursive=True)
        [found] = [each for each in children if {"--model", name} <= set(each.cmdline())]
        found.kill()
        self._gateway.until(lambda _: self._gateway.log.count("The engine ended by SIGKILL") > exits)

    async def _reached(self, progress: Progress, client: httpx.AsyncClient) -> bool:
        """Wait for this progress. Returns whether it has come."""

        async def wait() -> None:
            while not await self._has_reached(progress, client):  # noqa: ASYNC110 - the gateway has no event for it
                await asyncio.sleep(0.01)

        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(wait(), _PATIENCE_S)
            return True
        return False

    async def _has_reached(self, progress: Progress, client: httpx.AsyncClient) -> bool:
        begun = len(self._begun - self._ends.keys())
        if (len(self._ends), begun) != (progress.ends, progress.begun):
            return False  # without a question to the gateway
        if progress.counts != self._counts:  # rendering the metrics takes longer than most steps; the end compares all
            self._counts = await self._read_counts(client)
        return Progress.of(await self._seen(client, self._counts), begun) == progress

    async def _seen(self, client: httpx.AsyncClient, counts: Counts) -> Seen:
        answer = (await client.get("/api/decisions?limit=1000", headers=_AS_ADMIN)).json()
        return Seen(ways_of(reversed(answer["decisions"])), dict(self._ends), counts)

    async def _read_counts(self, client: httpx.AsyncClient) -> Counts:
        return _counts_of((await client.get("/metrics", headers=_AS_ADMIN)).text)


def _counts_of(page: str) -> Counts:
    """The sums of the counters over all their labels."""
    sums = dict.fromkeys(Counts._fields, 0)
    for line in page.splitlines():
        if found := _COUNTER.match(line):
            sums[found[1]] += int(float(found[2]))
    return Counts(**sums)


def _code(response: httpx.Response, answer: str) -> str:
    """The code of the error that ends an answer; empty if it is whole."""
    if response.status_code >= 400:
        return str(json.loads(answer)["error"]["code"])
    if "[DONE]" in answer or not response.headers["content-type"].startswith("text/event-stream"):
        return ""
    return str(json.loads(answer.rstrip().rpartition("data: ")[2])["error"]["code"])
