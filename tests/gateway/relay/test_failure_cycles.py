"""What fails while the gateway waits for it leaves nothing to the garbage collector, which runs seldom."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from enginehouse import Role
from enginehouse.domain.errors import RequestError
from enginehouse.relay.upstream.client import Client
from enginehouse.rescheduling import ReschedulingSettings
from tests.support.cluster_views import instance, view
from tests.support.garbage import left_behind, without_collector
from tests.support.model_engine import Break, ModelEngine, StartModelEngine
from tests.support.scripted_engine import Cut, ScriptedEngine, StartEngine, Step
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"
SHORT_S, LONG_S = 0.3, 60.0
"""The limit of a question that it ends, and of one that the engine ends: both runs must fail in the same way."""
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 40}
TEXT = {"model": MODEL, "prompt": "Tell", "max_tokens": 40}


async def left_by(fail: Callable[[], Awaitable[object]], *, settled: Callable[[], Awaitable[object]]) -> object:
    """What the second run of ``fail`` leaves behind. The first one makes what is made once."""
    await fail()
    await settled()
    with without_collector():
        await fail()
        await settled()
        return left_behind()


@pytest.mark.parametrize(
    ("script", "limit"),
    [((HEAD, Cut.RESET), LONG_S), ((b"nonsense\r\n\r\n",), LONG_S), ((HEAD, asyncio.Event()), SHORT_S)],
)
async def test_a_failed_question(
    house: OpenGateway, engine: StartEngine, script: tuple[Step, ...], limit: float
) -> None:
    served = await engine()
    gateway = await house(served)
    served.otherwise(script)

    async def fail() -> None:
        with pytest.raises(RequestError):
            await Client(gateway.relay.context.upstreams["a"], limit).request("GET", "/v1/models")

    assert not await left_by(fail, settled=lambda: closed(gateway, served))


@pytest.mark.parametrize(
    ("script", "limit"),
    [((HEAD, Cut.RESET), LONG_S), ((HEAD,), LONG_S), ((asyncio.Event(),), SHORT_S)],
    ids=["cut", "no events", "late"],
)
async def test_events_that_end(house: OpenGateway, engine: StartEngine, script: tuple[Step, ...], limit: float) -> None:
    served = await engine()
    gateway = await house(served)
    served.otherwise(script)

    async def fail() -> None:
        with pytest.raises(RequestError):
            await Client(gateway.relay.context.upstreams["a"], limit).follow("/events", lambda _: None)

    assert not await left_by(fail, settled=lambda: closed(gateway, served))


async def test_a_question_to_nobody(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(there=False))

    async def fail() -> None:
        with pytest.raises(RequestError):
            await Client(gateway.relay.context.upstreams["a"], 5.0).request("GET", "/v1/models")

    assert not await left_by(fail, settled=gateway.quiet)


async def test_a_request_to_nobody(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(there=False))

    async def fail() -> None:
        gateway.fleet.succeeded("a")
        assert (await gateway.ask()).status in (502, 503)

    assert not await left_by(fail, settled=gateway.quiet)


@pytest.mark.parametrize(
    "step", [Cut.CLOSE, Cut.RESET, asyncio.Event(), b"data: nonsense\n\n"], ids=["close", "reset", "stall", "nonsense"]
)
async def test_a_failed_move(house: OpenGateway, model_engine: StartModelEngine, step: Step) -> None:
    source, destination = await model_engine(), await model_engine()
    limits = {"migrate_timeout": SHORT_S if isinstance(step, asyncio.Event) else LONG_S}
    gateway = await house(source, destination, backend={"driver": "vllm"}, rescheduling=limits)
    source.gate = (3, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(CHAT, b"x-request-id: r1"))
    await client.head()
    await client.chunk()

    async def fail() -> None:
        destination.breaks = [Break(0, step)]
        with pytest.raises(RequestError):
            await gateway.relay.move("r1", "b")

    assert not await left_by(fail, settled=lambda: closed(gateway, destination))


async def test_a_move_whose_destination_does_not_read_ahead(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend={"driver": "vllm"})
    source.gate = (3, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(CHAT, b"x-request-id: r1"))
    await client.head()
    await client.chunk()

    async def fail() -> None:
        destination.scripts = [(HEAD, Cut.RESET)]
        with pytest.raises(RequestError):
            await gateway.relay.move("r1", "b")

    assert not await left_by(fail, settled=lambda: closed(gateway, destination))


async def test_a_continuation_that_fails(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, other = await model_engine(), await model_engine()
    gateway = await house(source, other, backend={"driver": "vllm"})

    async def fail() -> None:
        for name in "ab":
            gateway.fleet.succeeded(name)
        source.breaks, other.breaks = [Break(3, Cut.RESET)], [Break(3, Cut.RESET)] * 3
        with contextlib.suppress(AssertionError):
            await gateway.ask(gateway.post(CHAT))

    assert not await left_by(fail, settled=lambda: closed(gateway, source, other))


@pytest.mark.parametrize("script", [(HEAD, Cut.RESET), (HEAD, Cut.CLOSE)])
async def test_a_hand_over_that_fails(
    house: OpenGateway, model_engine: StartModelEngine, script: tuple[Step, ...]
) -> None:
    reads, answers = await model_engine(), await model_engine()
    gateway = await house(reads, answers, backend={"driver": "vllm"}, routing={"strategy": "llumnix_load"})
    roles = (instance("a", role=Role.PREFILL), instance("b", role=Role.DECODE))

    async def fail() -> None:
        gateway.fleet.succeeded("a")
        gateway.relay.context.router.strategies.on_view(view(*roles), ReschedulingSettings())
        reads.scripts = [script]
        assert (await gateway.ask(gateway.post(TEXT, path="/v1/completions"))).status == 200

    assert not await left_by(fail, settled=lambda: closed(gateway, reads, answers))


async def closed(gateway: ServedGateway, *engines: ScriptedEngine | ModelEngine) -> None:
    """Until the connections to ``engines`` are closed, but for those of live streams."""
    for _ in range(5):  # a connection that was given up while it was made is closed in the next turns
        await asyncio.sleep(0)
    connections = [connection for each in engines for connection in each.connections]
    for connection in connections:
        connection.transport.close()
    await gateway.until(lambda: all(connection.closed.is_set() for connection in connections))


async def test_a_web_socket_to_nobody(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(there=False))
    upgrade = (b"connection: Upgrade", b"upgrade: websocket", b"sec-websocket-version: 13")
    handshake = gateway.get("/upstream/m/", *upgrade, b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")

    async def fail() -> None:
        gateway.fleet.succeeded("a")
        assert (await gateway.ask(handshake)).status in (502, 503)

    assert not await left_by(fail, settled=gateway.disconnected)
