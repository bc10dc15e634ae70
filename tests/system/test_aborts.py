"""A thousand clients that leave without their answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

COUNT = 500
AT_ONCE = 125


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    """An engine that takes hours for a long answer, at two tokens in a second."""
    with SimEngine("m", tpot="500ms", concurrency=2 * AT_ONCE, context_length=200_000) as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(engine: SimEngine) -> Iterator[RunningGateway]:
    with RunningGateway(f'[backends.a]\ndriver = "sim"\nurl = "{engine.url}"\nmodels = ["m"]\n') as gateway:
        gateway.until_health(a="healthy")
        yield gateway


@pytest.fixture(autouse=True)
def forget(engine: SimEngine) -> None:
    engine.clear_requests()


class Client:
    """One connection with one request on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def send(cls, gateway: RunningGateway, *, stream: bool, cut: int = 0) -> Client:
        """Send a request for a long answer, but for the last ``cut`` bytes of its body."""
        address = urlsplit(gateway.url)
        client = cls(*await asyncio.open_connection(address.hostname, address.port))
        body = msgspec.json.encode({"model": "m", "prompt": "Hello", "stream": stream, "max_tokens": 150_000})
        head = f"POST /v1/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n\r\n"
        client._writer.write(head.encode() + body[: len(body) - cut])
        return client

    async def first_chunk(self) -> None:
        """Wait until the answer has begun."""
        got = b""
        while b"data: " not in got:
            piece = await self._reader.read(1 << 16)
            assert piece, got
            got += piece

    async def leave(self, *, reset: bool) -> None:
        """Close the connection, in good order or not."""
        if reset:
            self._writer.transport.abort()
        self._writer.close()
        await self._writer.wait_closed()


def counters(gateway: RunningGateway, http: httpx.Client) -> dict[str, float]:
    """The gauges of the gateway."""
    lines = http.get(f"{gateway.url}/metrics").text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def assert_nothing_is_left(gateway: RunningGateway, engine: SimEngine, http: httpx.Client) -> None:
    gateway.until(lambda status: status["requests"] == 0)
    gauges = counters(gateway, http)
    assert gauges["enginehouse_live_requests"] == 0
    assert gauges['enginehouse_backend_pending{backend="a"}'] == 0
    assert gauges['enginehouse_backend_healthy{backend="a"}'] == 1
    gateway.until(lambda _: engine.running() == 0)
    assert http.get(f"{gateway.url}/api/requests").json() == {"requests": []}


async def test_abandoned_streams_are_cancelled(gateway: RunningGateway, engine: SimEngine, http: httpx.Client) -> None:
    for _ in range(COUNT // AT_ONCE):
        clients = [await Client.send(gateway, stream=True) for _ in range(AT_ONCE)]
        for client in clients:
            await client.first_chunk()
        assert engine.running() == AT_ONCE
        for number, client in enumerate(clients):
            await client.leave(reset=number % 2 == 0)
        gateway.until(lambda status: status["requests"] == 0)

    assert_nothing_is_left(gateway, engine, http)
    gateway.until(lambda _: Counter(request.status for request in engine.requests()) == {"aborted": COUNT})


async def test_abandoned_requests_are_cancelled(gateway: RunningGateway, engine: SimEngine, http: httpx.Client) -> None:
    for _ in range(COUNT // AT_ONCE):
        clients = [await Client.send(gateway, stream=False) for _ in range(AT_ONCE)]
        gateway.until(lambda _: engine.running() == AT_ONCE)
        for number, client in enumerate(clients):
            await client.leave(reset=number % 2 == 0)
        gateway.until(lambda status: status["requests"] == 0)

    assert_nothing_is_left(gateway, engine, http)
    gateway.until(lambda _: Counter(request.status for request in engine.requests()) == {"aborted": COUNT})


async def test_a_client_that_disconnects_in_the_middle_of_its_request_leaves_nothing(
    gateway: RunningGateway, engine: SimEngine, http: httpx.Client
) -> None:
    for number in range(50):
        client = await Client.send(gateway, stream=True, cut=3)
        await client.leave(reset=number % 2 == 0)

    assert_nothing_is_left(gateway, engine, http)
    assert engine.requests() == []
