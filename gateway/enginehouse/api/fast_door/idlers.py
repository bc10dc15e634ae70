"""Connections that wait for their clients."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Idler(Protocol):
    """A connection."""

    loop: asyncio.AbstractEventLoop

    def look(self, now: float) -> None:
        """Close if the client has let this wait for too long; called every second."""


class Idlers:
    """Has every connection look every second at how long it has waited for its client.

    One sweep for all of them is cheaper than a timer for every answer.
    """

    def __init__(self) -> None:
        self._connections: set[Idler] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Idler) -> None:
        """Watch a connection."""
        self._connections.add(connection)
        if self._timer is None:
            self._timer = connection.loop.call_later(1, self._sweep, connection.loop)

    def discard(self, connection: Idler) -> None:
        """The connection is closed."""
        self._connections.discard(connection)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self._connections):
            connection.look(now)
        self._timer = loop.call_later(1, self._sweep, loop) if self._connections else None
