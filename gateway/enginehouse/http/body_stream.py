"""A body that is read piece by piece while it arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from enginehouse.domain.errors import RequestError

MOST_UNREAD: Final = 64 * 1024
"""In bytes. The client waits while more than this is unread."""


class BodyStream:
    """Keeps the pieces of a body until they are read.

    ``pause``: stops the client. ``resume``: lets it go on. Both belong to its connection and may be called twice.
    ``reader``: a task that has nothing more to do after ``disconnect``.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._whole = False
        self._read_to_end = self._disconnected = False
        self._error: RequestError | None = None
        self._changed = asyncio.Event()
        self.reader: asyncio.Task[None] | None = None

    def add(self, piece: bytes) -> None:
        """Keep a piece that has arrived."""
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread > MOST_UNREAD:
            self._pause()
        self._changed.set()

    def end(self) -> None:
        """The body is whole."""
        self._whole = True
        self._changed.set()

    def fail(self, error: RequestError) -> None:
        """Drop the rest: ``read`` raises ``error``."""
        self._error = error
        self._pieces.clear()
        self._changed.set()

    def disconnect(self) -> None:
        """The client has left, or has its answer: ``read`` returns ``None``."""
        self._disconnected = True
        self._pieces.clear()
        self._changed.set()
        if self.reader is not None:
            self.reader.cancel()
        self._pause = self._resume = _nothing  # else the cycle with the connection waits for the garbage collector

    async def read(self) -> tuple[bytes, bool] | None:
        """The next piece, and whether more will come; ``None`` once ``disconnect`` was called.

        After the last piece it waits for that. Raises the error of ``fail``.
        """
        while not (self._disconnected or self._error or self._pieces or (self._whole and not self._read_to_end)):
            self._changed.clear()
            self._resume()
            await self._changed.wait()
        if self._disconnected:
            return None
        if self._error is not None:
            raise self._error
        piece = b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        self._read_to_end = self._whole
        return piece, not self._whole


def _nothing() -> None:
    pass
