"""Transports without a socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Wire(asyncio.Transport):
    """Takes everything at once."""

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.last = data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class PlayedWire(asyncio.Transport):
    """The gateway's end of a connection whose other end is a test. Written bytes go to ``on_data``, unless it is slow.

    ``is_slow``: the other end reads nothing, and no buffer has room for more. ``has_lost``: bytes that it did not read
    in time.
    """

    def __init__(self, protocol: Any, on_data: Callable[[bytes], object]) -> None:
        super().__init__()
        self.is_slow = self.has_lost = False
        self._protocol = protocol
        self._on_data = on_data
        self._unread = bytearray()
        self._inbox: deque[bytes | Exception | None] = deque()
        self._reading = True
        self._closing = self._lost = self._full = False

    # --- the other end

    def receives(self, what: bytes | Exception | None) -> None:
        """The other end sends bytes, breaks the connection, or closes it."""
        self._inbox.append(what)
        self._deliver()

    def turn_slow(self, is_slow: bool) -> None:
        """The other end reads no more, or again."""
        self.is_slow = is_slow
        if is_slow or self._lost:
            return
        self._on_data(bytes(self._unread))
        self._unread.clear()
        if self._closing:
            self._lose(None)
        elif self._full:
            self._full = False
            self._protocol.resume_writing()

    def _deliver(self) -> None:
        while self._inbox and self._reading and not self._closing:
            what = self._inbox.popleft()
            if isinstance(what, bytes):
                self._protocol.data_received(what)
            else:
                self.abort(what)

    # --- the gateway

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if self._closing:
            return
        if not self.is_slow:
            self._on_data(data)
            return
        self._unread += data
        if not self._full:
            self._full = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._unread)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        asyncio.get_running_loop().call_soon(self._deliver)

    def close(self) -> None:
        self._closing = True
        if not self._unread:
            self._lose(None)

    def abort(self, why: Exception | None = None) -> None:
        self.has_lost = bool(self._unread)
        self._unread.clear()
        self._lose(why)

    def _lose(self, why: Exception | None) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, why)
