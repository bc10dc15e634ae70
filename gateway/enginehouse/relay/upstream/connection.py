"""One HTTP/1.1 connection to an engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import httptools

from enginehouse.aio.write_batch import BatchedTransport, WriteBatch, batched
from enginehouse.relay.answers.reply import FastPath
from enginehouse.relay.events.sse import content_of, whole_chunks
from enginehouse.relay.heads import FOR_THE_GATEWAY, AnswerHead, KnownHead, without_named

_LARGEST_HEAD: Final = 64 * 1024
"""In bytes, as for clients. It bounds whatever comes between two pieces of body."""
_MOST_INFORMATIONAL: Final = 16
_STALE_WITHIN_S: Final = 1.0
"""An engine's end that is closed already answers a request with a reset within one round trip."""
_DELAYED_ANEW: Final = 4
"""A pause in a stream ends the delay of acknowledgements: ask again whenever there are so many times more pieces."""

_QUICKACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)
"""0 where it does not exist: only Linux has it."""


class Receiver(Protocol):
    """The sender of a request, who gets its answer."""

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        """Take what arrived together: the head (once), a piece of the body, and whether the answer is complete.

        When it is ``complete``, the connection may serve other requests.
        """

    def broken(self, why: str, *, stale: bool) -> None:
        """The connection broke before the answer was complete.

        ``stale``: it had served before and broke within a second of this request, before the first byte of an answer,
        as happens when an engine closes a kept-alive connection just when a request is sent (RFC 9112, 9.5).
        """


class Connection:
    """Sends one request at a time, as part of ``writes``, and hands the answer to its receiver, as it arrives.

    - ``keep`` is called when the connection can serve again, ``remove`` when it no longer can.
    - ``kept_at``: since when it is idle, as ``now`` told it.
    - ``pieces``: how many pieces of the current answer's body have come.
    - ``fast_path``: of its events, if its receiver has opened one.
    - ``writable``: the engine reads fast enough. ``on_writable`` is called with whether it does, when that changes.
    - ``now``: a clock in seconds.
    """

    _transport: BatchedTransport

    def __init__(
        self,
        keep: Callable[[Connection], None],
        remove: Callable[[Connection], None],
        writes: WriteBatch,
        now: Callable[[], float],
    ) -> None:
        # First what every event reads, so that it is in one line of the processor's caches.
        self._receiver: Receiver | None = None
        self._between_chunks = self._stream = False
        self.fast_path: FastPath | None = None
        self.pieces = self._delays_at = 0
        self._keep = keep
        self._remove = remove
        self._writes = writes
        self.on_writable: Callable[[bool], None] | None = None
        self.writable = True
        self._parser: httptools.HttpResponseParser = cast(Any, None)
        self._known_head: KnownHead[AnswerHead] = KnownHead(b"x-request-id")
        self._served = 0
        self._now = now
        self._sent_at = 0.0
        self.kept_at = 0.0
        self._head_only = False
        self._pending = self._informational = 0
        self._reset()

    def _reset(self) -> None:
        self._lines: list[bytes] = []
        self._length: int | None = None
        self._chunked = False
        self._stream = self._encoded = False
        self._type = b""
        self._named = b""
        self._head: AnswerHead | None = None
        self._head_new = False
        self._body = b""
        self._further: list[bytes] = []
        self._complete = False
        self._began = False
        self._chunk_complete = self._between_chunks = False
        self.fast_path = None
        self.pieces = 0
        self._delays_at = 2  # the first piece may be the whole stream

    # --- for the receiver

    def send(self, receiver: Receiver, request: bytes) -> None:
        """Send a whole request; ``receiver`` gets its answer."""
        self._receiver = receiver
        self._pending = self._informational = 0
        self._head_only = request.startswith(b"HEAD ")
        self._sent_at = self._now()
        self._transport.write(request)

    def write(self, piece: bytes | bytearray) -> None:
        """Send the next piece of the body of a request whose head was sent, unless the connection is closed."""
        if not self._transport.is_closing():
            self._transport.write(bytes(piece))

    def redirect(self, receiver: Receiver) -> None:
        """Hand the rest of the answer to ``receiver``."""
        if self._receiver is not None:
            self._receiver = receiver
            self.fast_path = None

    def pause(self) -> None:
        """Stop reading from the engine until ``resume``."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read from the engine again."""
        self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once, without another call of the receiver."""
        self._receiver = None
        self._transport.abort()

    def abandon(self, receiver: Receiver) -> None:
        """``abort``, unless ``receiver`` has all of its answer: then another request may have the connection."""
        if self._receiver is receiver:
            self.abort()

    def close(self) -> None:
        """Close an idle connection."""
        self._transport.close()

    # --- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = batched(transport, self._writes)
        self._parser = httptools.HttpResponseParser(self)  # a cycle, which ends with the connection

    def data_received(self, data: bytes) -> None:
        """Pass on what arrived together in one call."""
        receiver = self._receiver
        if receiver is None:
            self._remove(self)
            self._transport.abort()
            return
        if self._between_chunks and (content := content_of(data)):
            self._count_piece()  # before: sending it may pause the answer
            if self.fast_path is None or not self.fast_path.take(data, content):
                receiver.answer(None, content, False)
            return
        first, self._began = not self._began, True
        if first and not self._head_only and (body := self._known_head.read(data)) is not None:
            head = self._known_head.meaning
            self._began = False
            self._free(True)
            receiver.answer(head if len(body) == head.length else head.of_length(len(body)), body, True)
            return
        try:
            self._parse(data, first)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"malformed response: {error.__context__ or error}")
            return
        if first and self._complete and self._keep_alive and not self._informational and self._known_head.learn(data):
            assert self._head is not None
            self._known_head.meaning = self._head
        # Behind a chunk, the line with the size of the next one would end so too: then the parser is inside that one.
        self._between_chunks = self._chunk_complete and data.endswith(b"\r\n")
        self._deliver()

    def _parse(self, data: bytes, first: bool) -> None:
        """Have ``data`` parsed, but for whole chunks: the parser would make three calls for each.

        It is between two chunks before them and behind them. ``first``: ``data`` begins with the head.
        """
        head = data[: data.find(b"\r\n\r\n") + 4] if first else b""
        if b"chunked" in head:
            self._feed(head)
            data = data[len(head) :]
            self._between_chunks = self._chunked and self._head_new and not (self._complete or self._body)
        if self._between_chunks:
            self._body, end = whole_chunks(data)
            data = data[end:]
            self._chunk_complete = True
            self._pending = 0 if end else self._pending
        if data:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        self._pending += len(data)
        self._parser.feed_data(data)
        if self._pending > _LARGEST_HEAD and not self._complete:
            raise _too_large()

    def _deliver(self) -> None:
        head = self._head if self._head_new else None
        self._head_new = False
        body, self._body = self._body, b""
        if self._further:
            body += b"".join(self._further)
            self._further.clear()
        receiver = self._receiver
        if receiver is None:
            return
        if self._complete:
            keep_alive = self._keep_alive
            self._reset()
            self._free(keep_alive)
            receiver.answer(head, body, True)
        elif head is not None or body:
            if body:
                self._count_piece()
            receiver.answer(head, body, False)

    def _count_piece(self) -> None:
        self.pieces += 1
        if self._stream and self.pieces == self._delays_at:
            self._delays_at *= _DELAYED_ANEW
            delay_acknowledgements(self._transport)

    def _free(self, keep_alive: bool) -> None:
        """Serve other requests, if the connection can, because this one is answered."""
        self._receiver = None
        self._served += 1
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # the engine answered early and may never read the rest of the request
        elif keep_alive:
            self._keep(self)
        else:
            self._transport.close()

    def eof_received(self) -> None:
        """Close: an engine that sends no more has nothing to say."""
        if self._receiver is None:
            self._remove(self)

    def pause_writing(self) -> None:
        self._set_writable(False)

    def resume_writing(self) -> None:
        self._set_writable(True)

    def _set_writable(self, writable: bool) -> None:
        self.writable = writable
        if self.on_writable is not None:
            self.on_writable(writable)

    def connection_lost(self, exc: Exception | None) -> None:
        self._remove(self)
        if self._receiver is not None:
            if self._head is not None and self._head.until_close and exc is None:
                self._complete = True
                self._keep_alive = False
                self._deliver()
            else:
                self._break(str(exc) if exc else "connection closed")
        self._parser = cast(Any, None)

    def _break(self, why: str) -> None:
        receiver, self._receiver = self._receiver, None
        stale = self._served > 0 and not self._began and self._now() - self._sent_at < _STALE_WITHIN_S
        self._transport.abort()
        if receiver is not None:
            receiver.broken(why, stale=stale)

    # --- from the parser

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self._complete:
            raise httptools.HttpParserError("unexpected second response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header line, or what it says of the framing. The trailers of a body change nothing any more."""
        name = name.lower()
        if name not in FOR_THE_GATEWAY:
            self._lines.append(name + b": " + value + b"\r\n")
            if name == b"content-type":
                self._type = value.lower().partition(b";")[0].strip()
            elif name == b"content-encoding" and value.strip().lower() != b"identity":
                self._encoded = True
        elif name == b"content-length":
            self._length = int(value)
        elif name == b"transfer-encoding":
            if self._chunked or value.strip(b" \t").lower() != b"chunked":
                raise httptools.HttpParserError("the only Transfer-Encoding understood is 'chunked', named once")
            self._chunked = True
        elif name == b"connection":
            self._named += b"," + value if self._named else value

    def on_headers_complete(self) -> None:
        """Make the head of the answer. An informational one (1xx) is dropped: another follows (RFC 9110, 15.2)."""
        status = self._parser.get_status_code()
        if not 100 <= status < 600:
            raise httptools.HttpParserError(f"there is no status {status:03}")
        if status < 200:
            self._informational += 1
            if self._informational > _MOST_INFORMATIONAL:
                raise httptools.HttpParserError(f"more than {_MOST_INFORMATIONAL} informational answers")
            self._reset()
            self._began = True
            return
        empty = status in (204, 304)
        bodiless = empty or self._head_only
        framed = self._chunked or self._length is not None or bodiless
        length = 0 if empty else None if self._chunked else self._length
        lines = b"".join(without_named(self._lines, self._named))
        if len(lines) > _LARGEST_HEAD:
            raise _too_large()
        self._pending = 0
        self._stream = streams = self._type == b"text/event-stream"
        stream = streams and not self._encoded and not bodiless  # an encoded body cannot be split into events
        json = self._type == b"application/json" or self._type.endswith(b"+json")
        at_once = json or (self._type.startswith(b"text/") and not streams)
        opaque = self._encoded or bodiless
        self._head = AnswerHead(status, lines, length, not framed, stream, json and not opaque, at_once, opaque)
        self._head_new = True
        if self._head_only:  # the parser would wait for a body, so it reads nothing more
            self._complete = True
            self._keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        if self._head_only:
            return
        if self._body:
            self._further.append(body)
        else:
            self._body = body

    def on_chunk_header(self) -> None:
        self._chunk_complete = False

    def on_chunk_complete(self) -> None:
        self._chunk_complete = True

    def on_message_complete(self) -> None:
        if self._head is not None and not self._head_only:
            self._complete = True
            # After an answer that announces a body but cannot have one, the connection's next bytes are ambiguous.
            doubtful = self._head.length == 0 and (self._chunked or self._length)
            self._keep_alive = self._parser.should_keep_alive() and not doubtful


def _too_large() -> httptools.HttpParserError:
    return httptools.HttpParserError(f"more than {_LARGEST_HEAD} bytes of head, trailers or chunk extensions")


def delay_acknowledgements(transport: BatchedTransport) -> None:
    """Let the kernel acknowledge every second small piece that is read, instead of each one.

    Sending one takes up to a tenth of the processor time of a relayed event. When a piece has waited for 40 ms, the
    kernel acknowledges it and returns to its former behaviour: an engine that uses Nagle's algorithm waits so long once
    for each call.
    """
    connection = transport.get_extra_info("socket")
    if _QUICKACK and connection is not None:
        with suppress(OSError, ValueError):  # the answer passes without it too
            connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 0)
