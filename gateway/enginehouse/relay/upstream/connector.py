"""Opens connections to engines."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod

from enginehouse.relay.upstream.origin import Origin


class Connector(ABC):
    """The way from the gateway to engines."""

    @abstractmethod
    async def connect(self, protocol: asyncio.Protocol, origin: Origin, tls: ssl.SSLContext | None) -> None:
        """Connect ``protocol`` to ``origin``, encrypted by ``tls`` if it is given.

        Raises ``OSError``, and ``UnicodeError`` for a name that no host can have.
        """


class SocketConnector(Connector):
    """Connects by TCP, through the running event loop."""

    async def connect(self, protocol: asyncio.Protocol, origin: Origin, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: protocol, origin.host, origin.port, ssl=tls)
