"""Reading and writing a virtual connection from a coroutine."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.chaos.endpoint import Endpoint


class Stream(asyncio.Protocol):
    """A protocol for engines and clients. ``broken`` is set when the connection was reset."""

    def __init__(self) -> None:
        self.transport: Endpoint = cast(Endpoint, None)
        self.ended = False
        self.broken = False
        self.closed = False
        self.at: float = 0.0
        self._data = bytearray()
        self._news: asyncio.Event = asyncio.Event()
        self._writable: asyncio.Event = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._news.set()

    def eof_received(self) -> bool:
        self.ended = True
        self._news.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = self.closed = True
        self.broken = exc is not None
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def read(self) -> bytes:
        """What has arrived, at least one byte; nothing at the end."""
        while not self._data and not self.ended:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._data)
        self._data.clear()
        return data

    async def write(self, data: bytes) -> None:
        self.transport.write(data)
        await self._writable.wait()

    async def wait_ended(self) -> None:
        """Wait until the other side has closed the connection, and read on."""
        while await self.read():
            pass
