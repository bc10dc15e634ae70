"""The server's end of a TCP connection, for the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection:
    """A client's connection. ``on_lost`` is called when the client closes it."""

    __slots__ = ("lost", "on_lost", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.lost = False
        self.on_lost: Callable[[], object] | None = None

    def lose(self) -> None:
        self.lost = True
        if self.on_lost is not None:
            self.on_lost()


class SimProtocol(HttpToolsProtocol):
    """Uvicorn's protocol. Each request finds its ``Connection`` in ``scope["state"]["connection"]``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state["connection"] = Connection(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state.pop("connection").lose()
