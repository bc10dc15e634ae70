"""The server's side of one TCP connection, within reach of whoever answers on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection:
    """A client's connection: its transport, and a call when the client has gone."""

    __slots__ = ("lost", "on_lost", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.lost = False
        self.on_lost: Callable[[], object] | None = None

    def lose(self) -> None:
        """The connection is gone."""
        self.lost = True
        if self.on_lost is not None:
            self.on_lost()


class SimProtocol(HttpToolsProtocol):
    """Uvicorn's protocol; each request finds its ``Connection`` in ``scope["state"]["connection"]``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._connection = Connection(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        super().connection_lost(exc)
        self._connection.lose()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"]["connection"] = self._connection
