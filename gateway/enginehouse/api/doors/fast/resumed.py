"""The first moment of a connection that another gateway has passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast


class Resumed(asyncio.Protocol):
    """Gives a connection to a new protocol, together with what was ``received`` on it before."""

    def __init__(self, make: Callable[[], asyncio.Protocol], received: bytes) -> None:
        self._make = make
        self._received = received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._make()
        cast(asyncio.Transport, transport).set_protocol(protocol)  # uvloop's transports inherit from nothing
        protocol.connection_made(transport)
        if self._received:
            protocol.data_received(self._received)
