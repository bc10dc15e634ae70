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
    was ``busy``: it had several. uvloop did much the same before 0.23. ``call_soon``: of the event loop; by default, of
    the one that runs. ``in_turn``: this turn has had a write. ``sent``: how many have gone out in it.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self.waiting: list[BatchedTransport] = []
        self.call_soon = call_soon
        self.in_turn = self.busy = False
        self.sent = 0

    def end_turn(self) -> None:
        """Send what waits, and note how busy the turn was."""
        self.busy = self.sent + len(self.waiting) > 1
        self.in_turn = False
        if self.waiting:
            self.send()
        self.sent = 0

    def send(self) -> None:
        """Send what waits."""
        waiting, self.waiting = self.waiting, []
        self.sent += len(waiting)
        for transport in waiting:
            try:
                transport.send()
            except Exception:  # noqa: PERF203 - the others must not wait for ever
                _log.exception("A connection cannot be written to")
                transport.abort()


class BatchedTransport:
    """A transport whose writes are part of ``batch``. What else connections need passes through.

    ``closed``: by this process; the peer may have closed the connection without that.
    """

    def __init__(self, transport: asyncio.Transport, batch: WriteBatch) -> None:
        self._transport = transport
        self._batch = batch
        self._kept = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        """Send ``data``, at the latest once the event loop has handled what has arrived by now."""
        if not data:
            return
        batch = self._batch
        waits = batch.in_turn or batch.busy
        if not batch.in_turn:
            batch.in_turn = True
            if batch.call_soon is None:
                batch.call_soon = asyncio.get_running_loop().call_soon  # this asks the system for the process each time
            batch.call_soon(batch.end_turn)
        if not waits:
            batch.sent = 1
        elif not self._kept:
            batch.waiting.append(self)
        self._kept = self._kept + data if self._kept else data
        if not waits or len(self._kept) >= _LARGE:
            self.send()
        elif len(batch.waiting) >= _MOST:
            batch.send()

    def send(self) -> None:
        """Send what is kept now."""
        data, self._kept = self._kept, b""
        if data and not self.closed:
            try:
                self._transport.write(data)
            except RuntimeError:  # from a lost connection, which is rare: asking first would cost every write time
                if not self._transport.is_closing():
                    raise

    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be once everything is sent."""
        return self.closed or self._transport.is_closing()

    def close(self) -> None:
        """Close once everything is sent. What is written from now on is dropped."""
        self.send()
        self.closed = True
        self._transport.close()

    def abort(self) -> None:
        """Close at once, after what is kept."""
        self.send()
        self.closed = True
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
