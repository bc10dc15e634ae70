"""A storm over several models while their engines are killed: each answer is whole or told broken, nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

import httpx
import pytest

from tests.support import plain_httpx
from tests.support.operated_gateway import OperatedGateway, ServeAlone, Stage, table

EACH = 8
SETTINGS = {"concurrency": "2"}


class Request(NamedTuple):
    model: str
    stream: bool


class Storm:
    """Sends requests, and kills the engine of a model after so many of its answers: ``kills``."""

    def __init__(self, gateway: OperatedGateway, kills: dict[str, int]) -> None:
        self._gateway = gateway
        self._kills = kills
        self._answers: Counter[str] = Counter()

    async def send(self, requests: list[Request]) -> list[httpx.Response]:
        return await asyncio.gather(*map(self._ask, requests))

    async def _ask(self, request: Request) -> httpx.Response:
        body = {"model": request.model, "messages": [], "max_tokens": 50, "stream": request.stream}
        async with plain_httpx.AsyncClient() as client:
            answer = await client.post(f"{self._gateway.process.url}/v1/chat/completions", json=body)
        self._answers[request.model] += 1
        if self._answers[request.model] == self._kills.get(request.model):
            await asyncio.to_thread(kill, self._gateway, request.model)
        return answer


def kill(gateway: OperatedGateway, model: str) -> None:
    """Kill the engine of ``model``, if it runs."""
    pid = gateway.engines().get(model)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_whole(request: Request, answer: httpx.Response) -> bool:
    if answer.status_code != 200:
        return False
    if request.stream:
        return answer.text.endswith("data: [DONE]\n\n")
    return bool(answer.json()["model"] == request.model and answer.json()["choices"])


def is_told(request: Request, answer: httpx.Response) -> bool:
    """Whether the client learns that its answer is not whole."""
    if answer.status_code == 200:
        return request.stream and "event: error\ndata: " in answer.text and "[DONE]" not in answer.text
    return answer.json()["error"]["code"] in ("load_failed", "upstream_error")


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_storm_while_engines_are_killed(serve_alone: ServeAlone, stage: Stage, seed: int) -> None:
    rng = random.Random(seed)
    loading, *others = rng.sample("abcd", 4)
    gateway = serve_alone(
        stage.table(loading, **SETTINGS) + "".join(table(each, tpot="4ms", **SETTINGS) for each in others)
    )
    requests = [Request(model, rng.random() < 0.5) for model in "abcd" * EACH]
    rng.shuffle(requests)
    storm = Storm(gateway, {model: rng.randint(1, EACH - 2) for model in others[:2]})
    sending = asyncio.create_task(storm.send(requests))
    await asyncio.to_thread(gateway.until, lambda _: loading in gateway.engines())
    await asyncio.to_thread(kill, gateway, loading)
    stage.open()
    answers = list(zip(requests, await sending, strict=True))

    for request, answer in answers:
        assert is_whole(request, answer) or is_told(request, answer), (request, answer.text)
        if not request.stream and request.model != loading:
            assert answer.status_code == 200, "an engine that was killed once is launched again, and asked again"
    for model in "abcd":
        assert gateway.ask(model).status_code == 200
    assert gateway.loads(loading) > 1
    assert gateway.requests() == []
    for gauge in ("enginehouse_live_requests", "enginehouse_backend_pending", "enginehouse_request_body_bytes"):
        assert gateway.metric(gauge) == 0
    assert len(gateway.engines()) == 1
    gateway.process.stop()
    assert gateway.engines() == {}
