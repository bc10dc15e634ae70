"""Virtual TCP: connections in memory between clients, the gateway and engines."""

from __future__ import annotations

import asyncio
import errno
import random
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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


class _Accept(NamedTuple):
    """Who accepts connections at an address."""

    name: str
    make: Factory
    loop: asyncio.AbstractEventLoop


class ListeningAddress:
    """A listening socket, and asyncio's ``Server`` of it."""

    def __init__(self, network: Network, address: Address, accept: _Accept | None = None) -> None:
        self._network = network
        self._address = address
        self._accept = accept
        self.sockets = (self,)

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        self._network.unlisten(self._address, self._accept)

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
        self._listeners: dict[Address, list[_Accept]] = {}
        self._count = 0
        self.accepts_at: Callable[[], float] = lambda: 0.0
        """From when on the gateway can accept connections: it may have no descriptors left until then."""
        self.keeps_waiting: Callable[[Address], bool] = lambda _: False
        """Whether connections to an address wait while nobody accepts them there."""
        self.killed: set[str] = set()
        """The ends of connections that processes had when they were killed."""
        self.endpoints: list[Endpoint] = []

    def listen(
        self, name: str, address: Address, factory: Factory, loop: asyncio.AbstractEventLoop | None = None
    ) -> ListeningAddress:
        accept = _Accept(name, factory, loop or self._loop)
        self._listeners.setdefault(address, []).append(accept)
        return ListeningAddress(self, address, accept)

    def unlisten(self, address: Address, accept: _Accept | None = None) -> None:
        """Accept no connections there, or not those of ``accept``."""
        left = [each for each in self._listeners.pop(address, []) if accept is not None and each is not accept]
        if left:
            self._listeners[address] = left

    def pair(
        self, name: str, here: asyncio.AbstractEventLoop, there: asyncio.AbstractEventLoop
    ) -> tuple[Endpoint, Endpoint]:
        """Two connected ends, one for each process. Nothing that is sent is lost before one of them ends."""
        quality = LinkQuality(self._rng)
        quality.slowest, quality.loses_unread = 0.001, False
        ends = [
            Endpoint(loop, f"{side} {name}", (name, 0), quality, lambda *_: None)
            for side, loop in (("owner of", here), ("channel of", there))
        ]
        for end, peer in zip(ends, reversed(ends), strict=True):
            end.peer = peer
            end.pause_reading()
        self.endpoints += ends
        return ends[0], ends[1]

    def exit_of(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close everything that the process of ``loop`` has."""
        for address, accepts in [*self._listeners.items()]:
            for accept in accepts:
                if accept.loop is loop:
                    self.unlisten(address, accept)
        for endpoint in self.endpoints:
            if endpoint.is_of(loop) and not endpoint.lost:
                self.killed.add(endpoint.name)
                endpoint.exit()

    def open(self) -> list[str]:
        """The gateway's ends of connections that are not closed."""
        return [each.name for each in self.endpoints if each.name.startswith("gateway") and not each.lost]

    def exit(self, prefix: str) -> None:
        """Close connections as the end of a process does."""
        for endpoint in self.endpoints:
            if endpoint.name.startswith(prefix):
                endpoint.abort()

    async def from_gateway(
        self, factory: Factory, host: str, port: int, loop: asyncio.AbstractEventLoop | None = None
    ) -> tuple[Endpoint, Any]:
        """What ``create_connection`` does in the gateway, or in the process of it that has ``loop``."""
        fault = self._connect_fault((host, port))
        if fault == "hang":
            await asyncio.sleep(1e6)
        if fault:
            await asyncio.sleep(self._rng.uniform(0, 0.01))
            raise CONNECT_FAULTS[fault](f"Connect call failed ('{host}', {port})")
        return await self.connect(factory, (host, port), "gateway", LinkQuality(self._rng), loop)

    async def connect(
        self,
        factory: Factory,
        address: Address,
        origin: str,
        quality: LinkQuality,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> tuple[Endpoint, Any]:
        """Connect to ``address``. Raises ``ConnectionRefusedError``."""
        await asyncio.sleep(quality.latency())
        if origin != "gateway" and (wait := self.accepts_at() - self._loop.time()) > 0:
            await asyncio.sleep(wait + 1.0)  # asyncio tries again after a second
        while address not in self._listeners and self.keeps_waiting(address):  # noqa: ASYNC110 - as a kernel's queue
            await asyncio.sleep(0.01)
        if address not in self._listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
        accepts = self._listeners[address]
        name, accept, there_loop = accepts[0] if len(accepts) == 1 else self._rng.choice(accepts)
        self._count += 1
        here = Endpoint(
            loop or self._loop,
            f"{origin}>{name}#{self._count}",
            ("127.0.0.1", 40_000 + self._count),
            quality,
            self._tap,
        )
        there = Endpoint(there_loop, f"{name}<{origin}#{self._count}", address, quality, self._tap)
        here.peer, there.peer = there, here
        self.endpoints += here, there
        for endpoint, make in ((there, accept), (here, factory)):
            endpoint._protocol = endpoint._call(make)
            endpoint._call(endpoint._protocol.connection_made, endpoint)
        return here, here._protocol
