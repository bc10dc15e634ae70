"""A whole gateway with its engines and clients on a clock that jumps: it probes, waits and gives up in no time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from enginehouse.app import Gateway
from enginehouse.config.schema import Config
from enginehouse.relay.upstream.outside import Outside
from enginehouse_kit.virtual_loop import VirtualLoop
from tests.chaos.bad_engines.faulty_engine import FaultyEngine
from tests.chaos.endpoint import LinkQuality
from tests.chaos.network import Network
from tests.chaos.virtual_time import gateway_clock
from tests.support.http_server import connect, http_server
from tests.support.installed_plugins import installed_plugins
from tests.support.raw_client import RawClient, RawResponse
from tests.support.scripted_engine import EngineConnection

_ADDRESS = ("127.0.0.1", 8080)


class VirtualGateway:
    """A gateway that listens in a virtual network."""

    def __init__(self, gateway: Gateway, network: Network) -> None:
        self.fleet = gateway.fleet
        self._network = network
        self._quality = LinkQuality(random.Random(0))

    def health(self, name: str) -> str:
        return str(next(each for each in self.fleet.backends() if each.name == name).health.value)

    async def until_health(self, name: str, health: str) -> None:
        while self.health(name) != health:  # noqa: ASYNC110 - virtual seconds cost nothing
            await asyncio.sleep(0.1)

    async def ask(self, data: bytes) -> RawResponse:
        """The answer to ``data`` on a connection of its own. Raises ``TimeoutError`` if none ever comes."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._network.connect(lambda: protocol, _ADDRESS, "client", self._quality)
        client = RawClient(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
        try:
            return await client.ask(data)
        finally:
            client.close()


class _GatewayNetwork:
    """The virtual network as the gateway's event loop sees it."""

    def __init__(self, network: Network) -> None:
        self.connect = network.from_gateway

    def listen(self, factory: Any, sock: Any) -> Any:
        raise NotImplementedError


@asynccontextmanager
async def virtual_gateway(engines: Sequence[FaultyEngine], **sections: object) -> AsyncIterator[VirtualGateway]:
    """A gateway with these engines as its healthy backends ``a``, ``b``, ``c`` ..., on the running virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    network = Network(loop, random.Random(0), lambda *_: None, lambda _: "")
    loop.network = _GatewayNetwork(network)
    backends = {}
    for name, engine in zip("abc", engines, strict=True):
        network.listen(name, (name, 8000), lambda engine=engine: EngineConnection(engine))  # type: ignore[misc]
        backends[name] = {"url": f"http://{name}:8000", "driver": "vllm"}
    config = msgspec.convert({"backends": backends, **sections}, Config)
    dice = random.Random(0)
    outside = Outside(gateway_clock(loop.virtual_time), chance=dice.random)
    gateway = Gateway(config, installed_plugins(), outside=outside)
    await gateway.start()
    server = http_server(gateway)
    network.listen("gateway", _ADDRESS, lambda: connect(server))
    yield VirtualGateway(gateway, network)
    assert not gateway.relay.live
    await gateway.stop()
