"""Sends what many connections write in one turn of the event loop together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

_log = logging.getLogger(__name__)

_MOST: Final = 16
"""Connections that wait: more would only keep the first one waiting longer."""
_LARGE: Final = 64 * 1024
"""In bytes: so much data does not wait."""


class WriteBatch:
    """The writes to processes that work side by side, such as all connections to one engine.

    A process that sleeps must be woken for a write, and waking it often costs more than the write. So the writes of a
    turn go out together: at its end, or when ``_MOST`` wait. Only the first one goes out at once, unless the last turn
    had several. uvloop did much the same before 0.23. ``call_soon``: of the event loop; by default, of the one that
    runs.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self.waiting: list[BatchedTransport] = []
        self._call_soon = call_soon
        self._in_turn = self._busy = False
        self._sent = 0

    def begin(self, transport: BatchedTransport) -> None:
        """Let ``transport``, while no other one waits, send what it keeps: now or with those that follow."""
        if not self._in_turn:
            self._in_turn = True
            if self._call_soon is None:
                self._call_soon = asyncio.get_running_loop().call_soon  # this asks the system for the process each time
            self._call_soon(self._end_turn)
            if not self._busy:
                self._sent = 1
                transport.send()
                return
        self.waiting.append(transport)

    def _end_turn(self) -> None:
        self._busy = self._sent + len(self.waiting) > 1
        self._in_turn = False
        if self.waiting:
            self.send()
        self._sent = 0

    def send(self) -> None:
        """Send what waits."""
        waiting, self.waiting = self.waiting, []
        self._sent += len(waiting)
        for transport in waiting:
            try:
                transport.send()
            except Exception:  # noqa: PERF203 - the others must not wait for ever
                _log.exception("A connection cannot be written to")
                transport.abort()


class BatchedTransport:
    """A transport whose writes are part of ``batch``. What else connections need passes through."""

    def __init__(self, transport: asyncio.Transport, batch: WriteBatch) -> None:
        self._transport = transport
        self._batch = batch
        self._kept = b""
        self._closed = False

    def write(self, data: bytes) -> None:
        """Send ``data``, at the latest once the event loop has handled what has arrived by now."""
        if self._kept:
            self._kept += data
        elif data:
            self._kept = data
            waiting = self._batch.waiting
            if not waiting:
                self._batch.begin(self)
            else:
                waiting.append(self)
                if len(waiting) >= _MOST:
                    self._batch.send()
        if len(self._kept) >= _LARGE:
            self.send()

    def send(self) -> None:
        """Send what is kept now."""
        data, self._kept = self._kept, b""
        if data and not self._closed:
            try:
                self._transport.write(data)
            except RuntimeError:  # from a lost connection, which is rare: asking first would cost every write time
                if not self._transport.is_closing():
                    raise

    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be once everything is sent."""
        return self._closed or self._transport.is_closing()

    def close(self) -> None:
        """Close once everything is sent. What is written from now on is dropped."""
        self.send()
        self._closed = True
        self._transport.close()

    def abort(self) -> None:
        """Close at once, after what is kept."""
        self.send()
        self._closed = True
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        """The number of bytes that the peer's kernel has not taken yet."""
        return len(self._kept) + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Read no more until ``resume_reading``."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A fact of the connection, such as its ``socket``."""
        return self._transport.get_extra_info(name, default)

    def released(self) -> asyncio.Transport:
        """The transport itself, after what is kept. From now on, write to that one only."""
        self.send()
        return self._transport


def batched(transport: asyncio.BaseTransport, batch: WriteBatch) -> BatchedTransport:
    """``transport`` with its writes in ``batch``."""
    return BatchedTransport(cast(asyncio.Transport, transport), batch)
