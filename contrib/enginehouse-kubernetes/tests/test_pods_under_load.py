"""Pods that are deleted and killed, and an API server that is away, while clients ask: what they see of it."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_api_server import SLICES, FakeApiServer, endpoint, endpoint_slice

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

CLIENTS, REQUESTS, ROUNDS, TOKENS = 8, 20, 12, 80
WAYS = ("deleted", "killed", "deleted without the API server", "killed without the API server")

CONFIG = """
[discovery.pods]
type = "kubernetes"
service = "sim"
namespace = "llm"
port = "http"
driver = "sim"
kubeconfig = "{}"
"""


class Pods:
    """Engines that are pods, and the API server that knows them."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self._number = 0
        self.running: dict[str, SimEngine] = {}

    async def add(self) -> None:
        self._number += 1
        name = f"pod-{self._number}"
        engine = SimEngine("sim", tpot="20ms", max_model_len=100_000)
        await asyncio.to_thread(engine.start)
        self.running[name] = engine
        self._tell(name)

    async def end(self, name: str, way: str) -> None:
        """Let a pod go in one of the ``WAYS``."""
        engine = self.running.pop(name)
        away = way.endswith("server")
        if away:
            await self._server.stop()
        if way.startswith("killed"):
            await asyncio.to_thread(engine.kill)
        self._tell(name, engine, ready=False, terminating=True)
        if away:
            await self._server.start()
        if way.startswith("deleted"):
            await self._until_idle(engine)
            await asyncio.to_thread(engine.stop)
        self._server.delete(SLICES, name)

    def close(self) -> None:
        for engine in self.running.values():
            engine.stop()

    async def _until_idle(self, engine: SimEngine) -> None:
        while await asyncio.to_thread(engine.running):  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.02)

    def _tell(self, name: str, engine: SimEngine | None = None, **conditions: bool) -> None:
        port = (engine or self.running[name]).port
        self._server.put(SLICES, endpoint_slice(endpoint(name, "127.0.0.1", **conditions), name=name, port=port))


def ask(url: str, *, stream: bool) -> str:
    """The text of an answer, or how it failed."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    body = {"model": "sim", "prompt": "once upon a time", "max_tokens": TOKENS, "stream": stream, "temperature": 0}
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return f"failed: {error!r}"
    finally:
        connection.close()
    if answer.status != 200:
        return f"failed: {answer.status} {data!r}"
    if not stream:
        return str(json.loads(data)["choices"][0]["text"])
    events = [line[6:] for line in data.splitlines() if line.startswith(b"data: ")]
    if events[-1:] != [b"[DONE]"]:
        return f"failed: cut after {len(events)} events"
    choices = [choice for event in events[:-1] for choice in json.loads(event).get("choices", ())]
    return "".join(choice["text"] for choice in choices)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_sees_that_pods_go(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def test(stack: ExitStack) -> None:
        server = FakeApiServer()
        await server.start()
        pods = Pods(server)
        stack.callback(pods.close)
        for _ in range(3):
            await pods.add()
        gateway = RunningGateway(CONFIG.format(server.kubeconfig(tmp_path)))
        await asyncio.to_thread(gateway.start)
        stack.callback(gateway.stop)
        await asyncio.to_thread(
            gateway.until, lambda now: [row["health"] for row in now["backends"]] == ["healthy"] * 3
        )
        expected = await asyncio.to_thread(ask, gateway.url, stream=False)
        answers: list[str] = []
        done = asyncio.Event()

        def client(number: int) -> None:
            for each in range(REQUESTS):
                answer = ask(gateway.url, stream=(number + each) % 2 == 0)
                answers.append(answer)

        async def break_things() -> Counter[str]:
            ways = Counter[str]()
            while not done.is_set() and ways.total() < ROUNDS:
                await pods.add()
                way = chance.choice(WAYS)
                ways[way] += 1
                await pods.end(chance.choice(sorted(pods.running)[:-1]), way)
            return ways

        with ThreadPoolExecutor(CLIENTS) as pool:
            loop = asyncio.get_running_loop()
            breaking = asyncio.ensure_future(break_things())
            await asyncio.gather(*(loop.run_in_executor(pool, client, number) for number in range(CLIENTS)))
            done.set()
            ways = await breaking
        await server.stop()
        wrong = Counter(each if each.startswith("failed") else "another text" for each in answers if each != expected)
        print(f"{len(answers)} answers, {wrong.total()} wrong, while pods were {dict(ways)}")
        assert not wrong
        assert ways.total() >= 3

    with ExitStack() as stack:
        asyncio.run(asyncio.wait_for(test(stack), 280))
