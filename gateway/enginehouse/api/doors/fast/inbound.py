"""One request for an inference endpoint."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.asgi import BODILESS
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Caller, Door, OpenExchange
from enginehouse.relay.events.chunk import framed

_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})


def status_line(status: int) -> bytes:
    """The first line of a response, with its line break."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def last_response(error: RequestError) -> bytes:
    """The whole response with ``error`` after which the connection closes."""
    body = msgspec.json.encode(error.envelope())
    framing = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return status_line(error.status) + framing + body


def _ignore(inbound: Inbound) -> None:
    """Takes a request whose connection is lost, and does nothing."""


class ClientConnection:
    """The state that the requests on one connection share.

    ``arrived`` takes a request that is complete, or that will be refused without its body. ``answered`` takes one that
    has been answered. ``address``: the client's.
    """

    __slots__ = ("address", "admission", "answered", "arrived", "flow", "transport")

    def __init__(
        self,
        admission: Admission,
        transport: BatchedTransport,
        flow: FlowControl,
        arrived: Callable[[Inbound], None],
        answered: Callable[[Inbound], None],
        address: str = "",
    ) -> None:
        self.address = address
        self.admission = admission
        self.transport = transport
        self.flow = flow
        self.arrived = arrived
        self.answered = answered

    def release(self) -> None:
        """Drop the callbacks of a lost connection: the cycle would wait for the garbage collector."""
        self.arrived = self.answered = _ignore


class Inbound(Door):
    """One request on a connection, and the ``Door`` of its exchange.

    It takes the place of uvicorn's request-response cycle, so it has the attributes that uvicorn's protocol reads.
    ``waits``: an earlier request is not answered yet. ``expects``: the client sends the body after a 100 Continue.
    ``saved``: the state of a stream whose beginning the client has from another gateway.
    """

    def __init__(
        self, connection: ClientConnection, path: str, headers: Headers, keep_alive: bool, chunks: bool
    ) -> None:
        self._connection = connection
        self._transport = connection.transport
        self.path = path
        self.headers = headers
        self._chunks = chunks
        self._chunked = False
        self.until_close = False
        self._head = b""
        self._pieces: list[bytes] = []
        self._body = self.saved = b""
        self._size = 0
        self._error: RequestError | None = None
        self._caller: Caller | None = None
        self.exchange: OpenExchange | None = None
        self.keep_alive = keep_alive
        self.expects = False
        self.waits = False
        self.whole = False
        self.response_complete = False

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def may_repeat(self) -> bool:
        """Whether the same head may come again: the connection stays open, and the body comes unasked."""
        return self.keep_alive and self._chunks and not self.expects

    # --- from the client

    def check_head(self) -> None:
        """Refuse the request before its body is read, if its head suffices for that."""
        try:
            self._caller = self._connection.admission.admit(self.headers)
        except RequestError as error:
            self._refuse(error)

    def receive_known(self, body: bytes) -> None:
        """Keep the whole body of a request whose head was checked when it came before."""
        admission, size = self._connection.admission, len(body)
        try:
            self._caller = admission.admit_again(self.headers, size)
            admission.body_memory.take(size)
        except RequestError as error:
            self._refuse(error)
            return
        self._size = size
        self._pieces.append(body)
        self.received()

    def ask_for_body(self) -> None:
        """Let the client send the body, if it is wanted and the request's turn has come (RFC 9110, 10.1.1)."""
        if not self.waits and not self.whole:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def receive(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if self.whole:
            return
        admission, size = self._connection.admission, len(body)
        try:
            if self._size + size > admission.max_body:
                raise admission.too_large()
            admission.body_memory.take(size)
        except RequestError as error:
            self._refuse(error)
            return
        self._size += size
        self._pieces.append(body)
        if self.waits and self._size > HIGH_WATER_LIMIT:
            self._connection.flow.pause_reading()

    def received(self) -> None:
        """The body is complete."""
        if not self.whole:
            self.whole = True
            self._connection.arrived(self)

    def _give_back(self) -> None:
        """Count the body out of the memory that bodies take."""
        self._body = b""
        self._connection.admission.body_memory.held -= self._size
        self._size = 0

    def _refuse(self, error: RequestError) -> None:
        """Answer with ``error`` without reading the rest."""
        self._error = error
        self._pieces.clear()
        self._give_back()
        self.keep_alive = False
        self.received()

    def begin(self) -> None:
        """Open the exchange. The request is complete, and its turn has come."""
        self.exchange = exchange = self._connection.admission.relay.open(self, self.path, self.headers)
        if self._error is not None:
            if self.saved:  # the client has the beginning of another answer
                self.abort()
            else:
                exchange.cancel(self._error)
            return
        pieces, self._pieces = self._pieces, []
        self._body = body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self.saved:
            self._chunked = True
            if not exchange.go_on(body, self._caller, self.saved):
                self.abort()
        else:
            exchange.begin(body, self._caller)

    def save_stream(self) -> tuple[bytes, bytes] | None:
        """End a stream that another gateway can continue. Returns the request as it came, and what has passed."""
        exchange = self.exchange
        if exchange is None or not self._chunked or self._head:
            return None
        saved = exchange.save(self)
        if saved is None:
            return None
        self.exchange = None
        return self._as_it_came(saved[0]), saved[1]

    def take_back(self) -> bytes | None:
        """Withdraw the whole request, and return it as it came.

        ``None`` if an engine has it, if it is refused, or if its answer has begun, even if no engine has the rest now.
        """
        answering = self.exchange is not None and (not self._body or not self.exchange.withdraw())
        if self._error is not None or answering:
            return None
        body = self._body or b"".join(self._pieces)
        self.exchange = None
        self._pieces.clear()
        self._give_back()
        return self._as_it_came(body)

    def _as_it_came(self, body: bytes) -> bytes:
        lines = [b"%s: %s\r\n" % line for line in self.headers if line[0] not in _FRAMING]
        version = b"1.1" if self._chunks else b"1.0"
        head = b"POST %s HTTP/%s\r\n%s" % (self.path.encode(), version, b"".join(lines))
        return b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)

    def client_disconnected(self) -> None:
        """The connection is closed."""
        exchange, self.exchange = self.exchange, None  # otherwise the cycle of the two waits for the garbage collector
        if exchange is not None:
            exchange.client_disconnected()
        self._give_back()

    # --- to the client

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Send a whole response in one piece."""
        self._body = b""
        if not self.keep_alive or status in BODILESS:
            super().answer(status, lines, body)
            return
        head = _STATUS_LINES.get(status) or status_line(status)
        self._transport.write(b"%s%scontent-length: %d\r\n\r\n%s" % (head, lines, len(body), body))
        self._answered()

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        """Prepare the head. It is sent with the first piece."""
        self._body = b""
        if status in BODILESS:
            framing = b""
        elif length is not None:
            framing = b"content-length: %d\r\n" % length
        elif self._chunks:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            framing = b""
            self.until_close = True
            self.keep_alive = False
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        self._head = b"%s%s%s%s\r\n" % (status_line(status), lines, framing, closing)

    def write(self, chunk: bytes) -> None:
        """Send a piece, after the head if that has not been sent."""
        if self._chunked:
            chunk = framed(chunk)
        if self._head:
            chunk = self._head + chunk
            self._head = b""
        self._transport.write(chunk)

    def chunks_to(self) -> BatchedTransport | None:
        return self._transport if self._chunks else None

    def finish(self, chunk: bytes) -> None:
        """Send the last piece. The connection turns to its next request."""
        head, self._head = self._head, b""
        if self._chunked:
            last = framed(chunk) + b"0\r\n\r\n" if chunk else b"0\r\n\r\n"
            self._transport.write(head + last)
        elif head or chunk:
            self._transport.write(head + chunk)
        self._answered()

    def _answered(self) -> None:
        self.response_complete = True
        self.exchange = None
        self._give_back()
        self._connection.answered(self)

    def unread(self) -> int:
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Break the connection."""
        self.response_complete = True
        self._give_back()
        transport = self._transport
        if self.until_close:  # only a reset shows this client that the answer is cut off
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
