"""Virtual TCP: connections in memory between clients, the gateway and engines."""

from __future__ import annotations

import asyncio
import errno
import random
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.chaos.endpoint import Address, Endpoint, LinkQuality, Tap

CONNECT_FAULTS: dict[str, Callable[[str], OSError]] = {
    "refused": partial(OSError, errno.ECONNREFUSED),
    "unreachable": partial(OSError, errno.EHOSTUNREACH),
    "emfile": partial(OSError, errno.EMFILE),
    "certificate": partial(ssl.SSLCertVerificationError, 1),
    "no TLS": partial(ssl.SSLError, 1),
    "handshake": ConnectionAbortedError,
}
"""How a connection to an engine fails. The last three do so in its TLS handshake."""
Factory = Callable[[], asyncio.BaseProtocol]


class ListeningAddress:
    """A listening socket, and asyncio's ``Server`` of it."""

    def __init__(self, network: Network, address: Address) -> None:
        self._network = network
        self._address = address
        self.sockets = (self,)

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        self._network.unlisten(self._address)

    async def wait_closed(self) -> None:
        pass


class Network:
    """All connections between clients, the gateway and engines.

    ``connect_fault`` says how the gateway's connection to an address fails; "" if it does not.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: random.Random, tap: Tap, connect_fault: Callable[[Address], str]
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._tap = tap
        self._connect_fault = connect_fault
        self._listeners: dict[Address, tuple[str, Factory]] = {}
        self._count = 0
        self.accepts_at: Callable[[], float] = lambda: 0.0
        """From when on the gateway can accept connections: it may have no descriptors left until then."""
        self.endpoints: list[Endpoint] = []

    def listen(self, name: str, address: Address, factory: Factory) -> ListeningAddress:
        self._listeners[address] = name, factory
        return ListeningAddress(self, address)

    def unlisten(self, address: Address) -> None:
        self._listeners.pop(address, None)

    def open(self) -> list[str]:
        """The gateway's ends of connections that are not closed."""
        return [each.name for each in self.endpoints if each.name.startswith("gateway") and not each.lost]

    def exit(self, prefix: str) -> None:
        """Close connections as the end of a process does."""
        for endpoint in self.endpoints:
            if endpoint.name.startswith(prefix):
                endpoint.abort()

    async def from_gateway(self, factory: Factory, host: str, port: int) -> tuple[Endpoint, Any]:
        """What ``create_connection`` does in the gateway."""
        fault = self._connect_fault((host, port))
        if fault == "hang":
            await asyncio.sleep(1e6)
        if fault:
            await asyncio.sleep(self._rng.uniform(0, 0.01))
            raise CONNECT_FAULTS[fault](f"Connect call failed ('{host}', {port})")
        return await self.connect(factory, (host, port), "gateway", LinkQuality(self._rng))

    async def connect(
        self, factory: Factory, address: Address, origin: str, quality: LinkQuality
    ) -> tuple[Endpoint, Any]:
        """Connect to ``address``. Raises ``ConnectionRefusedError``."""
        await asyncio.sleep(quality.latency())
        if origin != "gateway" and (wait := self.accepts_at() - self._loop.time()) > 0:
            await asyncio.sleep(wait + 1.0)  # asyncio tries again after a second
        if address not in self._listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
        name, accept = self._listeners[address]
        self._count += 1
        here = Endpoint(
            self._loop, f"{origin}>{name}#{self._count}", ("127.0.0.1", 40_000 + self._count), quality, self._tap
        )
        there = Endpoint(self._loop, f"{name}<{origin}#{self._count}", address, quality, self._tap)
        here.peer, there.peer = there, here
        self.endpoints += here, there
        for endpoint, make in ((there, accept), (here, factory)):
            endpoint._protocol = make()
            endpoint._call(endpoint._protocol.connection_made, endpoint)
        return here, here._protocol
