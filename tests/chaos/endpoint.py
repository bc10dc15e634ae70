"""One end of a virtual connection."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.chaos.chaos_loop import ProcessLoop, within

Tap = Callable[["Endpoint", str, bytes], None]
"""Is shown what an endpoint does: ``write``, ``read``, ``close``, ``reset``, ``lost``."""
Address = tuple[str, int]


class LinkQuality:
    """How one connection behaves. Sizes are in bytes, times in seconds."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.slowest = rng.choice((0.0005, 0.002, 0.02))
        self.piece = rng.choice((1 << 16, 1 << 16, 1460, 7))
        self.window = rng.choice((1 << 16, 1 << 16, 4096))
        self.high_water = rng.choice((1 << 16, 2048))
        self.loses_unread = rng.random() < 0.3
        self._cuts = 12

    def latency(self) -> float:
        return 0.00005 + (self.slowest - 0.00005) * self.rng.random()

    def cut(self, length: int) -> int:
        """How much of ``length`` bytes travels together. Pieces are no longer small after a few of them."""
        if not self._cuts or length == 1:
            return length
        self._cuts -= 1
        return min(length, 1 + int(self.piece * self.rng.random()))


class _Socket:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def getsockname(self) -> Address:
        return self._endpoint.address

    def getpeername(self) -> Address:
        return self._endpoint.peer.address

    def setsockopt(self, *option: object) -> None:
        if isinstance(option[2], bytes):  # SO_LINGER with a time of 0
            self._endpoint.resets = True


class Endpoint(asyncio.Transport):
    """One end of a connection. It behaves as asyncio's transports on Linux do.

    A pause of the reader fills ``window``, then the buffer of the writer. An end that is closed while something is
    unread resets the connection, and so does one that gets data when it is closed.
    """

    peer: Endpoint

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, address: Address, quality: LinkQuality, tap: Tap):
        super().__init__()
        self.name = name
        self.address = address
        self.resets = False
        self.lost = False
        self._loop = loop
        self._kernel = loop.parent if isinstance(loop, ProcessLoop) else loop
        self._tap = tap
        self._quality = quality
        self._protocol: Any = None
        self._unsent = bytearray()
        self._on_way = 0
        self._wire: deque[tuple[str, bytes]] = deque()
        self._wire_free_at = 0.0
        self._inbox: deque[tuple[str, bytes]] = deque()
        self._paused = False
        self._closing = False
        self._gone = False
        self._eof_asked = False
        self._eof_sent = False
        self._peer_reset = False
        self._writer_paused = False
        self._high, self._low = quality.high_water, quality.high_water // 4

    # --- asyncio's interface

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": _Socket(self), "sockname": self.address, "peername": self.peer.address}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        if self.is_reading():
            self._paused = True

    def resume_reading(self) -> None:
        if self._paused and not self._closing:
            self._paused = False
            self._loop.call_soon(self._deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None:
            self._high, self._low = high, high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof_asked:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._gone or not data:
            return
        self._tap(self, "write", bytes(data))
        if self._peer_reset:
            self._force_close(_reset())
            return
        self._unsent += data
        self._pump()
        if len(self._unsent) > self._high and not self._writer_paused:
            self._writer_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._closing and not self._eof_asked:
            self._eof_asked = True
            self._pump()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._tap(self, "close", b"")
        if not self._unsent:
            self._leave(None)

    def abort(self) -> None:
        self._force_close(None)

    def reset(self) -> None:
        """Break the connection so that the other side sees it at once."""
        self.resets = True
        self._force_close(None)

    def join(self, protocol: asyncio.BaseProtocol) -> tuple[Endpoint, Any]:
        """Begin to use one end of a ``pair``."""
        self._protocol, self._paused = protocol, False
        self._call(self._protocol.connection_made, self)
        self._loop.call_soon(self._deliver)
        return self, protocol

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it belongs to the process of ``loop``."""
        return self._loop is loop

    def exit(self) -> None:
        """Close as the end of its process does."""
        if not self.lost:
            self.abort()
            self.lost = True

    # --- sending

    def _pump(self) -> None:
        """Hand over to the wire what the window has room for."""
        while self._unsent and (room := self._quality.window - self._on_way) > 0:
            size = self._quality.cut(min(len(self._unsent), room))
            piece = bytes(self._unsent[:size])
            del self._unsent[:size]
            self._on_way += size
            self._travel("data", piece)
        if self._unsent:
            return
        if self._closing and not self._gone:
            self._leave(None)
        elif self._eof_asked and not self._eof_sent:
            self._eof_sent = True
            self._travel("eof", b"")

    def _travel(self, kind: str, data: bytes) -> None:
        self._wire.append((kind, data))
        self._wire_free_at = max(self._wire_free_at, self._kernel.time() + self._quality.latency())
        self._kernel.call_at(self._wire_free_at, self._arrive)

    def _arrive(self) -> None:
        if self._wire:  # else a reset has overtaken it
            self.peer._arrived(*self._wire.popleft())

    def _taken(self, size: int) -> None:
        """The other side has read ``size`` bytes."""
        self._on_way -= size
        if self._unsent:
            self._pump()
        if self._writer_paused and len(self._unsent) <= self._low and not self._gone:
            self._writer_paused = False
            within(self._loop, self._protocol.resume_writing)

    # --- receiving

    def _arrived(self, kind: str, data: bytes) -> None:
        if kind == "reset":
            self._peer_reset = True
            if self._quality.loses_unread:
                self._inbox.clear()
            if self._unsent:  # asyncio, which waits for room to write, notices even while it does not read
                self._force_close(_reset())
        if self._gone:
            if kind == "data" and not self._peer_reset:
                self._travel("reset", b"")
            return
        self._inbox.append((kind, data))
        if self._closing and kind == "reset":
            self._leave(None)
        else:
            self._deliver()

    def _deliver(self) -> None:
        while self._inbox and not (self._paused or self._closing):
            kind, data = self._inbox.popleft()
            if kind == "data":
                while self._inbox and self._inbox[0][0] == "data" and len(data) < 1 << 18:
                    data += self._inbox.popleft()[1]
                self._tap(self, "read", data)
                self._call(self._protocol.data_received, data)
                self.peer._taken(len(data))
            elif kind == "eof":
                self._tap(self, "eof", b"")
                if not self._call(self._protocol.eof_received):
                    self.close()
            else:
                self._force_close(_reset())

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return within(self._loop, method, *arguments)
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": f"Fatal error: {method.__name__}() of {self.name} failed", "exception": error}
            )
            self._force_close(error)

    # --- the end

    def _force_close(self, why: Exception | None) -> None:
        if not self._gone:
            self._closing = True
            self._unsent.clear()
            self._tap(self, "abort", b"")
            self._leave(why)

    def _leave(self, why: Exception | None) -> None:
        self._gone = True
        if self.resets or any(kind == "data" for kind, _ in self._inbox):
            self._wire.clear()
            self._travel("reset", b"")
        elif not self._peer_reset and not self._eof_sent:
            self._eof_sent = True
            self._travel("eof", b"")
        self._inbox.clear()
        self._loop.call_soon(self._lose, why)

    def _lose(self, why: Exception | None) -> None:
        self.lost = True
        self._tap(self, "lost", b"")
        self._call(self._protocol.connection_lost, why)
        self._protocol = None


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
