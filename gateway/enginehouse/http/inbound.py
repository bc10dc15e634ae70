"""One request on a client's connection, and its answer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.http.admission import Admission
from enginehouse.http.body_stream import BodyStream
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.events.sse import framed
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter

BODILESS: Final = frozenset({204, 304})
"""Statuses of responses without a body (RFC 9112, 6.3)."""
_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})

Opens = Callable[[ResponseWriter, str, Headers], OpenExchange]
"""Makes the exchange of a request from its client's side, its path and its headers."""


def status_line(status: int) -> bytes:
    """The first line of a response, with its line break."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def last_response(status: int, body: bytes, date: bytes) -> bytes:
    """The whole response with an error after which the connection closes. ``date``: a header line."""
    framing = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return status_line(status) + date + framing + body


class DateLine:
    """Makes the line of the header ``Date`` (RFC 9110, 6.6.1) once a second. ``epoch``: the time in seconds."""

    __slots__ = ("_epoch", "_line", "_second")

    def __init__(self, epoch: Callable[[], float]) -> None:
        self._epoch = epoch
        self._second = -1
        self._line = b""

    def now(self) -> bytes:
        """The line for this second, ending in CRLF."""
        second = int(self._epoch())
        if second != self._second:
            self._second = second
            self._line = b"date: %s\r\n" % formatdate(second, usegmt=True).encode()
        return self._line


class Inbound(ResponseWriter):
    """One request on a connection, and the client's side of its exchange.

    A request for an engine is collected, and begins when it is whole: ``opens`` makes its exchange, by default the
    relay's ``open``. One with a ``stream`` begins at once.

    - ``target``: as it came, with the query. ``path``: what it means.
    - ``on_answered``: called with this when the answer is complete.
    - ``keep_alive``: the connection stays open after the answer.
    - ``chunks``: the client understands answers in chunks.
    - ``lines``: further header lines of the answer.
    - ``expects``: the client sends the body after a 100 Continue.
    - ``saved``: the state of a stream whose beginning the client has from another gateway.
    - ``head_first``: a head without a length leaves before there is a body, as clients of events wait for it.
    - ``until_close``: the end of the connection is the end of the answer.
    """

    address = ""

    def __init__(
        self,
        transport: BatchedTransport,
        admission: Admission,
        on_answered: Callable[[Inbound], None],
        address: str,
        method: bytes,
        target: bytes,
        path: str,
        headers: Headers,
        keep_alive: bool,
        chunks: bool,
    ) -> None:
        self._transport = transport
        self._admission = admission
        self._on_answered = on_answered
        self.address = address
        self._method = method
        self._target = target
        self.path = path
        self.headers = headers
        self.keep_alive = keep_alive
        self._chunks = chunks
        self._chunked = False
        self.until_close = False
        self._head = b""
        self._pieces: list[bytes] = []
        self._body = self.saved = self.lines = b""
        self.size = 0
        self._error: RequestError | None = None
        self.caller: AdmittedCaller | None = None
        self.opens: Opens | None = None
        self.exchange: OpenExchange | None = None
        self.stream: BodyStream | None = None
        self._reads: Callable[[OpenExchange], None] | None = None
        self.expects = self.head_first = self.whole = self.answered = self._sent = False

    @property
    def started(self) -> bool:
        """Whether the client may have received a part of the answer, or soon will."""
        return not self.answered and (self._sent or (self.whole and self.exchange is not None))

    @property
    def awaits_page(self) -> bool:
        """Whether its client only reads what a page will soon answer, of which nothing was sent yet."""
        return self._method == b"GET" and self._reads is not None and not self._sent

    # --- from the client

    def read_from(self, stream: BodyStream, opens: Opens, reads: Callable[[OpenExchange], None]) -> None:
        """Have the body read from ``stream``. ``reads`` begins that, with the exchange that ``opens`` has made."""
        self.stream, self.opens, self._reads = stream, opens, reads

    def ask_for_body(self) -> None:
        """Let the client send the body, if it is wanted (RFC 9110, 10.1.1)."""
        if not self.whole:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def receive(self, piece: bytes) -> bool:
        """Take a piece of the body. Returns whether the request can begin, because it is refused."""
        if self.whole:
            return False
        admission, size = self._admission, len(piece)
        try:
            if self.size + size > admission.max_body:
                raise admission.too_large()
            if self.stream is None:
                admission.body_memory.take(size)
        except RequestError as error:
            self.refuse(error)
            return self.stream is None
        self.size += size
        if self.stream is None:
            self._pieces.append(piece)
        else:
            self.stream.add(piece)
        return False

    def receive_whole(self, body: bytes) -> None:
        """Take the whole body of a request whose head is like one that was admitted. It can begin then."""
        admission, size = self._admission, len(body)
        try:
            self.caller = admission.admit_alike(self.headers, size)
        except RequestError as error:
            self.refuse(error)
            return
        self.size = size
        self._pieces.append(body)
        self.whole = True

    def received(self) -> bool:
        """The body is complete. Returns whether the request can begin."""
        if self.whole:
            return False
        self.whole = True
        if self.stream is None:
            return True
        self.stream.end()
        return False

    def refuse(self, error: RequestError) -> None:
        """Answer with ``error`` when the turn comes, and do not wait for the rest of the body."""
        if self.stream is not None:
            self.stream.fail(error)
            return
        self._error = error
        self._pieces.clear()
        self._give_back()
        self.keep_alive = False
        self.whole = True

    def _give_back(self) -> None:
        """Count the body out of the memory that bodies take."""
        self._body = b""
        if self.stream is None:
            self._admission.body_memory.held -= self.size
        self.size = 0

    def begin(self) -> None:
        """Open the exchange. The turn of the request has come; unless it has a ``stream``, it is complete."""
        opens = self.opens or self._admission.relay.open
        self.exchange = exchange = opens(self, self.path, self.headers)
        if self._reads is not None:
            self._reads(exchange)
            return
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
            if not exchange.go_on(body, self.caller, self.saved):
                self.abort()
        else:
            exchange.begin(body, self.caller)

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
        if self.stream is not None or self._error is not None:
            return None
        if self.exchange is not None and (not self._body or not self.exchange.withdraw()):
            return None
        body = self._body or b"".join(self._pieces)
        self.exchange = None
        self._pieces.clear()
        self._give_back()
        return self._as_it_came(body)

    def _as_it_came(self, body: bytes) -> bytes:
        lines = [b"%s: %s\r\n" % line for line in self.headers if line[0] not in _FRAMING]
        version = b"1.1" if self._chunks else b"1.0"
        head = b"%s %s HTTP/%s\r\n%s" % (self._method, self._target, version, b"".join(lines))
        return b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)

    def client_disconnected(self) -> None:
        """The connection is closed."""
        exchange = self.exchange
        self._end()
        if exchange is not None:
            exchange.client_disconnected()

    def _end(self) -> None:
        """Drop the body, and what refers back to this: the cycle would wait for the garbage collector."""
        self.exchange = self.opens = self._reads = None
        self._give_back()
        if self.stream is not None:
            self.stream.disconnect()

    # --- to the client

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Send a whole response in one piece."""
        if not self.keep_alive or status in BODILESS or self._method == b"HEAD":
            super().answer(status, lines, body)
            return
        self._body = b""
        self._sent = True
        head = (_STATUS_LINES.get(status) or status_line(status)) + lines + self._admission.date() + self.lines
        self._transport.write(b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body))
        self.answered = True
        self._end()
        self._on_answered(self)

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        """Prepare the head. It is sent with the first piece."""
        self._body = b""
        if status in BODILESS or (length is None and self._method == b"HEAD"):
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
        head = _STATUS_LINES.get(status) or status_line(status)
        own_lines = self._admission.date() + self.lines
        self._head = b"%s%s%s%s%s\r\n" % (head, lines, own_lines, framing, closing)
        if self.head_first and length is None:
            head, self._head = self._head, b""
            self._sent = True
            self._transport.write(head)

    def write(self, chunk: bytes) -> None:
        """Send a piece, after the head if that has not been sent."""
        if self._chunked:
            chunk = framed(chunk)
        elif self._method == b"HEAD":
            return
        if self._head:
            chunk = self._head + chunk
            self._head = b""
            self._sent = True
        self._transport.write(chunk)

    def chunks_to(self) -> BatchedTransport | None:
        return self._transport if self._chunks and self._method != b"HEAD" else None

    def finish(self, chunk: bytes) -> None:
        """Send the last piece. The connection turns to its next request."""
        head, self._head = self._head, b""
        self._sent = True
        if self._chunked:
            last = framed(chunk) + b"0\r\n\r\n" if chunk else b"0\r\n\r\n"
            self._transport.write(head + last)
        elif self._method == b"HEAD":
            self._transport.write(head)
        elif head or chunk:
            self._transport.write(head + chunk)
        self.answered = True
        self._end()
        self._on_answered(self)

    def unread(self) -> int:
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Break the connection."""
        self.answered = True
        self._give_back()
        transport = self._transport
        if self.until_close:  # only a reset shows this client that the answer is cut off
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
