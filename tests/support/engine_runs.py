"""What every real engine must do behind the gateway, whatever its kind."""

from __future__ import annotations

import asyncio

from enginehouse_kit.gateway import RunningGateway
from tests.support.engine_groups import engine_groups, live
from tests.support.plain_httpx import get, post
from tests.support.read_streams import StreamReader, many_streams, start
from tests.support.waiting import until


def shows_metrics(gateway: RunningGateway, backend: str, name: str) -> None:
    """Its own figures are on the gateway's page, under the name of its backend."""
    page = get(f"{gateway.url}/metrics/engines").text
    assert any(line.startswith(name) and f'backend="{backend}"' in line for line in page.splitlines()), page[:2000]


async def stops_for_a_client_that_leaves(gateway: RunningGateway, model: str, tokens: int) -> None:
    """A stream whose client leaves is over at the gateway, and the engine can take the next one at once."""
    async with many_streams() as http:
        reader = StreamReader("leaves", model, "hello", tokens)
        [reading] = start([reader], http, gateway.url)
        await until(lambda: reader.events > 2)
        reading.cancel()
        await asyncio.wait([reading])
    async with many_streams() as http:
        while await live(http, gateway):
            pass
        seen = await StreamReader("next", model, "hello", 4).read(http, gateway.url)
    assert (seen.finish, seen.ended) == ("length", True)
    assert [each["pending"] for each in gateway.status()["backends"]] == [0] * len(gateway.status()["backends"])


async def drains(gateway: RunningGateway, backend: str, model: str, tokens: int) -> None:
    """A drained engine ends the stream that it has, gets no new request, and serves again when the drain is undone."""
    async with many_streams() as http:
        reader = StreamReader("drained", model, "hello", tokens)
        [reading] = start([reader], http, gateway.url)
        await until(lambda: reader.events > 2)
        assert (await http.post(f"{gateway.url}/api/backends/{backend}/drain")).status_code == 200
        body = {"model": model, "prompt": "hello", "max_tokens": 2}
        refused = await http.post(f"{gateway.url}/v1/completions", json=body)
        seen = await reading
        assert (await http.post(f"{gateway.url}/api/backends/{backend}/undrain")).status_code == 200
        served = await http.post(f"{gateway.url}/v1/completions", json=body)
    assert (seen.finish, seen.ended) == ("length", True)
    assert (refused.status_code, served.status_code) == (503, 200)


def embeds(gateway: RunningGateway, model: str, timeout: float = 60) -> None:
    """Two texts have two vectors of the same size, and the same text has the same one."""
    body = {"model": model, "input": ["hello world", "a story", "hello world"]}
    answer = post(f"{gateway.url}/v1/embeddings", json=body, timeout=timeout)
    assert answer.status_code == 200, answer.text
    first, other, again = (each["embedding"] for each in answer.json()["data"])
    assert len(first) == len(other) > 1
    assert first != other
    assert max(abs(a - b) for a, b in zip(first, again, strict=True)) < 1e-3


def embeds_again_after_a_kill(gateway: RunningGateway, model: str, timeout: float = 60) -> None:
    """A killed engine is launched again for the next request. None of its processes is left."""
    killed = engine_groups(gateway)[model]
    killed.kill_leader()
    gateway.until(lambda status: {each["model"]: each["state"] for each in status["replicas"]}[model] != "ready")
    embeds(gateway, model, timeout)
    assert killed.is_gone()
