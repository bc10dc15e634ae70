"""One hot request of a client."""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import Protocol

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

from enginehouse.api.asgi_door import BODILESS
from enginehouse.api.entrance import Entrance
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Caller
from enginehouse.relay.exchange import Exchange

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def status_line(status: int) -> bytes:
    """The first line of a response."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


class Line(Protocol):
    """The connection that a request came on."""

    entrance: Entrance
    transport: asyncio.Transport
    flow: FlowControl

    def arrived(self, inbound: Inbound) -> None:
        """``inbound`` is whole, or is not worth waiting for."""

    def answered(self, inbound: Inbound) -> None:
        """``inbound`` has its answer."""


class Inbound:
    """One hot request on a connection: a ``Door`` to its exchange.

    It stands where uvicorn keeps its request-response cycle, so it has the attributes that uvicorn's protocol looks at.
    ``waits``: a request before it is not answered yet. ``expects``: its client sends the body when it is told to.
    """

    def __init__(self, line: Line, path: str, headers: Headers, keep_alive: bool, chunks: bool) -> None:
        self._line = line
        self._path = path
        self._headers = headers
        self._chunks = chunks
        self._chunked = False
        self._until_close = False
        self._head = b""
        self._pieces: list[bytes] = []
        self._length = 0
        self._error: RequestError | None = None
        self._caller: Caller | None = None
        self.exchange: Exchange | None = None
        self.keep_alive = keep_alive
        self.expects = False
        self.waits = False
        self.whole = False
        self.response_complete = False

    # --- from the client

    def enter(self) -> None:
        """The head is here: find out whether the body is worth reading."""
        try:
            self._caller = self._line.entrance.enter(self._headers)
        except RequestError as error:
            self._turn_away(error)

    def receive(self, body: bytes) -> None:
        """A piece of the body."""
        if not self.whole:
            self._length += len(body)
            self._pieces.append(body)
            if self._length > self._line.entrance.max_body:
                self._turn_away(self._line.entrance.too_large())
            elif self.waits and self._length > HIGH_WATER_LIMIT:
                self._line.flow.pause_reading()

    def received(self) -> None:
        """The body is whole."""
        if not self.whole:
            self.whole = True
            self._line.arrived(self)

    def _turn_away(self, error: RequestError) -> None:
        """Answer with ``error`` without reading the rest."""
        self._error = error
        self._pieces.clear()
        self.keep_alive = False
        self.received()

    def begin(self) -> None:
        """The request is whole and its turn has come."""
        self.exchange = exchange = self._line.entrance.relay.open(self, self._path, self._headers)
        if self._error is not None:
            exchange.cancel(self._error)
            return
        pieces, self._pieces = self._pieces, []
        exchange.begin(pieces[0] if len(pieces) == 1 else b"".join(pieces), self._caller)

    def client_gone(self) -> None:
        """The connection is closed."""
        if self.exchange is not None:
            self.exchange.client_gone()

    # --- to the client

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        """Prepare the head; it leaves with the first piece."""
        if status in BODILESS:
            framing = b""
        elif length is not None:
            framing = b"content-length: %d\r\n" % length
        elif self._chunks:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            framing = b""
            self._until_close = True
            self.keep_alive = False
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        self._head = b"%s%s%s%s\r\n" % (status_line(status), lines, framing, closing)

    def write(self, chunk: bytes) -> None:
        """Send a piece, with the head if that is still here."""
        head, self._head = self._head, b""
        if self._chunked:
            self._line.transport.write(b"%s%x\r\n%s\r\n" % (head, len(chunk), chunk))
        else:
            self._line.transport.write(head + chunk if head else chunk)

    def finish(self, chunk: bytes) -> None:
        """Send the last piece and turn to the connection's next request."""
        head, self._head = self._head, b""
        if self._chunked:
            last = b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk) if chunk else b"0\r\n\r\n"
            self._line.transport.write(head + last)
        elif head or chunk:
            self._line.transport.write(head + chunk)
        self.response_complete = True
        self.exchange = None
        self._line.answered(self)

    def abort(self) -> None:
        """Break the connection."""
        self.response_complete = True
        transport = self._line.transport
        if self._until_close:  # only a reset tells this client that the answer is not whole
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
