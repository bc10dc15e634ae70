"""One HTTP/1.1 connection to an engine."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools
import msgspec

from enginehouse.relay.headers import FOR_THE_GATEWAY, without_named


class AnswerHead(msgspec.Struct, frozen=True):
    """The head of an engine's answer.

    ``lines`` are the headers that are meant for the client, as they stand on the wire. ``length`` is in bytes, where
    the engine says it. ``until_close``: nothing but the end of the connection marks the end of the body. ``stream``:
    the body is a stream of events.
    """

    status: int
    lines: bytes
    length: int | None
    until_close: bool
    stream: bool


class Receiver(Protocol):
    """Whoever sent a request on a connection."""

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        """What arrived together: the head (once), a piece of the body, whether that was all.

        When ``complete``, the connection is no longer this receiver's.
        """

    def broken(self, why: str, *, stale: bool) -> None:
        """The connection broke before the answer was complete.

        ``stale``: it had served before and broke before the first byte of this answer, as happens when an engine closes
        a kept-alive connection just when a request is sent.
        """


class Home(Protocol):
    """Where connections are kept between two requests."""

    def release(self, connection: Connection) -> None:
        """``connection`` can serve again."""

    def forget(self, connection: Connection) -> None:
        """``connection`` is closed."""


class Connection(asyncio.Protocol):
    """Sends one request at a time and hands the answer to its receiver, as it arrives."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: Receiver | None = None
        self._served = 0
        self._head_only = False
        self._reset()

    def _reset(self) -> None:
        self._lines: list[bytes] = []
        self._length: int | None = None
        self._chunked = False
        self._stream = False
        self._named = b""
        self._head: AnswerHead | None = None
        self._head_new = False
        self._body: list[bytes] = []
        self._complete = False
        self._began = False

    # --- the receiver's side

    @property
    def usable(self) -> bool:
        """Whether a request may be sent now."""
        return self._receiver is None and not self._transport.is_closing()

    def send(self, receiver: Receiver, request: bytes) -> None:
        """Send a whole request; its answer goes to ``receiver``."""
        self._receiver = receiver
        self._head_only = request.startswith(b"HEAD ")
        self._transport.write(request)

    def pause(self) -> None:
        """Read nothing more from the engine until ``resume``."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; the receiver hears no more."""
        self._receiver = None
        self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        self._transport.close()

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called once the connection stands."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived and pass it on in one piece."""
        if self._receiver is None:
            self._transport.abort()
            return
        self._began = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"malformed response: {error.__context__ or error}")
            return
        self._deliver()

    def _deliver(self) -> None:
        head = self._head if self._head_new else None
        self._head_new = False
        pieces = self._body
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        receiver = self._receiver
        if receiver is None:
            return
        if self._complete:
            self._receiver = None
            self._release()
            receiver.answer(head, body, True)
        elif head is not None or body:
            receiver.answer(head, body, False)

    def _release(self) -> None:
        keep = self._keep_alive and not self._transport.is_closing()
        self._served += 1
        self._reset()
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # the engine answered early, and may never read the rest of the request
        elif keep:
            self._home.release(self)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The engine closed the connection, or it broke."""
        self._home.forget(self)
        if self._receiver is None:
            return
        if self._head is not None and self._head.until_close and exc is None:
            self._complete = True
            self._keep_alive = False
            self._deliver()
        else:
            self._break(str(exc) if exc else "connection closed")

    def _break(self, why: str) -> None:
        receiver, self._receiver = self._receiver, None
        stale = self._served > 0 and not self._began
        self._transport.abort()
        if receiver is not None:
            receiver.broken(why, stale=stale)

    # --- the parser's side

    def on_message_begin(self) -> None:
        """An answer begins; a second one to the same request is a protocol error."""
        if self._complete:
            raise httptools.HttpParserError("unexpected second response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line; those that trail a body come too late to matter."""
        name = name.lower()
        if name not in FOR_THE_GATEWAY:
            self._lines.append(name + b": " + value + b"\r\n")
            if name == b"content-type":
                self._stream = value.lower().startswith(b"text/event-stream")
        elif name == b"content-length":
            self._length = int(value)
        elif name == b"transfer-encoding":
            if self._chunked or value.strip(b" \t").lower() != b"chunked":
                raise httptools.HttpParserError("the only Transfer-Encoding understood is 'chunked', named once")
            self._chunked = True
        elif name == b"connection":
            self._named += b"," + value if self._named else value

    def on_headers_complete(self) -> None:
        """The head is whole; an informational one (1xx) is followed by another."""
        status = self._parser.get_status_code()
        if not 100 <= status < 600:
            raise httptools.HttpParserError(f"there is no status {status:03}")
        if status < 200:
            self._reset()
            self._began = True
            return
        empty = status in (204, 304)
        bodiless = empty or self._head_only
        framed = self._chunked or self._length is not None or bodiless
        length = 0 if empty else None if self._chunked else self._length
        lines = b"".join(without_named(self._lines, self._named))
        self._head = AnswerHead(status, lines, length, not framed, self._stream and not bodiless)
        self._head_new = True
        if self._head_only:  # the parser would wait for a body, so this is the last that it reads
            self._complete = True
            self._keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if not self._head_only:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._head is not None and not self._head_only:
            self._complete = True
            # After an answer that has no body but announces one, nobody knows what comes next on the connection.
            doubtful = self._head.length == 0 and (self._chunked or self._length)
            self._keep_alive = self._parser.should_keep_alive() and not doubtful
