"""Messages between the owner and one worker, over a unix socket, in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, Union, cast

import msgspec

from enginehouse.app.workers.messages import Told, WorkerMessage
from enginehouse.app.workers.told_errors import told
from enginehouse.domain.errors import ShuttingDown

_log = logging.getLogger(__name__)

_LENGTH: Final = 4
_encode = msgspec.msgpack.Encoder().encode
_decode: Final[Callable[[bytes], WorkerMessage]] = msgspec.msgpack.Decoder(
    Union[tuple(WorkerMessage.__subclasses__())]  # noqa: UP007 - made of a tuple
).decode


class Channel(asyncio.Protocol):
    """One side of the connection. Messages of one turn of the event loop are written together.

    ``on_message`` is called with each message but the answers to ``ask``, ``on_lost`` when the other process is gone.
    """

    def __init__(self, on_message: Callable[[WorkerMessage], None], on_lost: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._outgoing: list[bytes] = []
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last_call = 0
        self.closed = False

    async def open(self, connected: socket.socket) -> None:
        """Begin on a connected socket, of the running event loop."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=connected)

    def send(self, message: msgspec.Struct) -> None:
        """Send ``message`` soon. Does nothing once the other process is gone."""
        if self.closed:
            return
        data = _encode(message)
        self._outgoing += (len(data).to_bytes(_LENGTH, "big"), data)
        if len(self._outgoing) == 2:
            asyncio.get_running_loop().call_soon(self.flush)

    @property
    def waiting(self) -> int:
        """The bytes that the other process has not read."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def flush(self) -> None:
        """Write the messages that wait."""
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and outgoing and not self.closed:
            self._transport.write(b"".join(outgoing))

    async def ask(self, message: Callable[[int], msgspec.Struct]) -> Any:
        """Send a message with the number of a call, and return what is told. Raises ``RequestError``."""
        self._last_call += 1
        call = self._last_call
        if self.closed:
            raise _gone()
        answer = self._calls[call] = asyncio.get_running_loop().create_future()
        self.send(message(call))
        try:
            return await answer
        finally:
            del self._calls[call]

    def close(self) -> None:
        """End the connection, when all is written."""
        self.flush()
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    # --- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's has no such base
        self.flush()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        place = 0
        while len(received) - place >= _LENGTH:
            end = place + _LENGTH + int.from_bytes(received[place : place + _LENGTH], "big")
            if len(received) < end:
                break
            message = _decode(bytes(received[place + _LENGTH : end]))
            place = end
            try:
                if isinstance(message, Told):
                    self._answer(message)
                else:
                    self._on_message(message)
            except Exception:
                _log.exception("A message between the gateway's processes met a defect")
        del received[:place]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        for waiting in self._calls.values():
            if not waiting.done():
                waiting.set_exception(_gone())
        self._on_lost()

    def _answer(self, message: Told) -> None:
        waiting = self._calls.get(message.call)
        if waiting is None or waiting.done():
            return
        if message.error is None:
            waiting.set_result(message.value)
        else:
            waiting.set_exception(told(message.error))


def _gone() -> ShuttingDown:
    return ShuttingDown("The process of the gateway that should answer has ended; send the request again")
