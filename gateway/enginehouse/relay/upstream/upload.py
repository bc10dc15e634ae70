"""Forwards the rest of a large request body from the client to an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from enginehouse.relay.events.sse import framed
from enginehouse.relay.upstream.connection import Connection

_MOST_HELD: Final = 256 * 1024


class UploadTurn(Enum):
    """The side that an upload waits for."""

    CLIENT = "the client sends the next piece"
    ENGINE = "the engine reads what was sent"
    ANSWER = "the engine answers"


class Upload:
    """Takes the pieces of a body as they come, and holds them until an engine reads them.

    ``length``: of the whole body in bytes, if the client announced it; else the engine gets chunks (RFC 9112, 7.1).
    ``taken``: the bytes of all pieces.
    """

    __slots__ = ("_connection", "_held", "_report", "_room", "_whole", "_writable", "length", "taken")

    def __init__(self, length: int | None) -> None:
        self.length = length
        self._connection: Connection | None = None
        self._report: Callable[[UploadTurn], None] | None = None
        self._held = bytearray()
        self.taken = 0
        self._whole = False
        self._writable = False
        self._room = asyncio.Event()
        self._room.set()

    @property
    def held(self) -> int:
        """The number of bytes that wait for the engine."""
        return len(self._held)

    @property
    def begun(self) -> bool:
        """Whether an engine reads it."""
        return self._connection is not None

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self.taken += len(piece)
        self._held += self.framed(piece)
        self._send()

    def end(self) -> None:
        """The body is whole."""
        self._whole = True
        if self.length is None:
            self._held += b"0\r\n\r\n"
        self._send()

    async def room(self) -> None:
        """Wait until the next piece may come."""
        await self._room.wait()

    def begin(self, connection: Connection, report: Callable[[UploadTurn], None]) -> None:
        """Send what comes on ``connection``, and ``report`` whose turn it is."""
        self._connection, self._report = connection, report
        connection.on_writable = self.set_writable
        self.set_writable(connection.writable)

    def set_writable(self, writable: bool) -> None:
        """The engine reads, or has too much unread."""
        self._writable = writable
        self._send()

    def framed(self, piece: bytes) -> bytes:
        """``piece`` as it is written to the engine."""
        return framed(piece) if self.length is None and piece else piece

    def _send(self) -> None:
        connection = self._connection
        while connection is not None and self._writable and self._held:
            piece = self._held[:_MOST_HELD]
            del self._held[:_MOST_HELD]
            connection.write(piece)  # this may end with ``set_writable``
        if len(self._held) < _MOST_HELD and (connection is None or self._writable):
            self._room.set()
        else:
            self._room.clear()
        if self._report is not None:
            self._report(self._turn())

    def _turn(self) -> UploadTurn:
        if not self._writable:
            return UploadTurn.ENGINE
        return UploadTurn.ANSWER if self._whole else UploadTurn.CLIENT
