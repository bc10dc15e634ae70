"""A client's connection: its requests come in, and leave in the same order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import httptools

from enginehouse.aio.clock import loop_clock
from enginehouse.aio.write_batch import BatchedTransport, batched
from enginehouse.domain.errors import InvalidRequest, RequestError
from enginehouse.domain.request import Headers, RepeatedHeaders
from enginehouse.http.body_stream import MOST_UNREAD, BodyStream
from enginehouse.http.framing import (
    MOST_HEAD,
    RequestPieces,
    ambiguous_end,
    check_framing,
    head_too_large,
    head_without_upgrade,
)
from enginehouse.http.inbound import Inbound
from enginehouse.http.server import HttpServer
from enginehouse.relay.attempts.attempt import NEVER
from enginehouse.relay.heads import AlikeHeads, KnownHead

_log = logging.getLogger(__name__)

PassOn = Callable[[int, bytes, bytes], None]
"""Gives another gateway a connection: its descriptor, what the client has sent that nobody has answered, and the state
of a stream that is the beginning of the answer."""

_A_SECOND: Final = 1024
_KEEP_ALIVE_S: Final = 75.0
"""A connection without a request closes after this time."""
_LAST_REQUEST_S: Final = 0.25
"""A client that was served a second ago gets so long to send a request that crosses the end of the connection."""
_MOST_AT_ONCE: Final = 16 * 1024
_MOST_STEPS: Final = 2048
_REQUEST: Final = 64
"""Bytes that are parsed at once, and the steps after which other connections have a turn. A header is a step, as is a
piece of a body; a request takes as long as so many of them."""
VARYING: Final[tuple[bytes, ...]] = (b"traceparent", b"x-request-id")
"""The headers that differ from request to request."""
_REST_WITHIN_S: Final = 5.0
"""A client that has its answer and sends nothing more of its request for so long is not waited for."""


class ClientConnection:
    """A client's connection. It has the methods of ``asyncio.Protocol``, and those that httptools calls.

    It inherits from nothing, so that it can be compiled.

    - ``keeps``: cleared if the next answer is the connection's last one.
    - ``resumes``: the state of the stream that answers the next request, from another gateway.
    - ``received``: what another gateway has read of the connection.
    - ``idle_since``: when the client became silent, on the loop's clock.
    - ``between``: the last request has been received, and nothing since. ``_in_head``: a head has begun to arrive.
    - ``_last``: the request that was received last; what comes behind it is parsed once it is answered. ``_current`` is
      the same while it is being answered, and ``_ready`` while it waits for the client to read earlier answers.
    - ``_charged``: the bytes since the last complete head or piece of a body, and a KiB for each second of waiting, so
      that no head is endless, and none takes much longer than a minute.
    - ``_unread``: the bytes of answers that the client has not taken yet, and since when it has taken none.
    - ``_unparsed``: what has been received and waits. ``_yields``: until other connections have had a turn.
      ``_steps``: those since their last one.
    - ``_successor``: set once another gateway has taken over.
    """

    _transport: BatchedTransport
    """Set by ``connection_made``."""

    def __init__(
        self,
        server: HttpServer,
        keeps: bool = True,
        resumes: bytes = b"",
        received: bytes = b"",
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.server = server
        self._admission = server.admission
        self.keeps = keeps
        self.resumes = resumes
        self._early = received
        self._loop = loop or asyncio.get_running_loop()
        self._now = loop_clock(self._loop)
        self._parser: Any = httptools.HttpRequestParser(self)
        self._pieces = RequestPieces()
        self._known: KnownHead[AlikeHeads] = KnownHead(*VARYING)
        self._repeated = RepeatedHeaders()
        self._unread, self._unread_since = 0, 0.0
        self._url = b""
        self._headers: Headers = []
        self._expects = False
        self._in_head = False
        self.between = True
        self._charged = 0
        self._last: Inbound | None = None
        self._current: Inbound | None = None
        self._ready: Inbound | None = None
        self._read_paused = False
        self._steps = 0
        self._yields = False
        self._unparsed: bytes | memoryview = b""
        self.write_paused = False
        self.idle_since = self._now()
        self._successor: PassOn | None = None
        self.address = ""

    # --- from the parser

    def on_message_begin(self) -> None:
        if self._pieces.done:
            raise ambiguous_end()
        self._steps += _REQUEST
        self._in_head = True
        self.between = False
        self._url = b""
        self._headers = []
        self._expects = False

    def on_url(self, url: bytes) -> None:
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._steps += 1
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head, and begin what needs no body first."""
        parser, headers = self._parser, self._headers
        if len(self._pieces.head) > MOST_HEAD:
            raise head_too_large()
        self._charged = 0
        method, version = parser.get_method(), parser.get_http_version()
        self._pieces.check_line(method, self._url)
        length, chunked = check_framing(version, headers)
        self._in_head = False
        if parser.should_upgrade():
            if method == b"CONNECT":
                raise InvalidRequest("CONNECT is not supported: this is not a forward proxy")
            return
        self._pieces.begin_body(length, chunked)
        self._headers = []  # so that no trailer passes for a header
        chunks = version != "1.0"
        keep_alive = self.keeps and chunks and parser.should_keep_alive()
        path = self._admission.hot_paths.get(self._url) if method == b"POST" else None
        self._last = inbound = Inbound(
            self._transport,
            self._admission,
            self._answered,
            self.address,
            method,
            self._url,
            path or "",
            headers,
            keep_alive,
            chunks,
        )
        inbound.expects = self._expects and chunks  # of HTTP/1.0, it must be ignored (RFC 9110, 10.1.1)
        inbound.saved, self.resumes = self.resumes, b""
        if path is not None:
            inbound.lines = self.server.cors.lines(headers)
            try:
                inbound.caller = self._admission.admit(headers)
            except RequestError as error:
                inbound.refuse(error)
        else:
            stream = BodyStream(self.pause_reading, self.resume_reading)
            self.server.open(inbound, stream, method, self._url, version, self._transport)
        if inbound.stream is not None or inbound.whole:
            self._arrived(inbound)
        elif inbound.expects:
            inbound.ask_for_body()

    def _is_web_socket(self) -> bool:
        if self._parser.get_method() != b"GET":
            return False
        upgrade, connection = b"", b""
        for name, value in self._headers:
            if name == b"upgrade":
                upgrade = value.lower()
            elif name == b"connection":
                connection = value.lower()
        return upgrade == b"websocket" and b"upgrade" in [token.strip() for token in connection.split(b",")]

    def on_body(self, body: bytes) -> None:
        """Pass a piece of a body on. It is dropped if the request is answered already; then only its time counts."""
        last = self._last
        assert last is not None
        self._steps += 1
        if last.answered:
            self._charged -= len(body)
            self.idle_since = self._now()
            return
        self._charged = 0
        if last.receive(body):
            self._arrived(last)

    def on_message_complete(self) -> None:
        self._charged = 0
        last = self._last
        if self._headers:  # _feed will parse this request once more, or it has trailers
            if self._parser.should_upgrade():
                return
            if last is not None and not self._parser.should_keep_alive():
                last.keep_alive = False
        if not self._pieces.done:
            raise ambiguous_end()
        self.between = True
        assert last is not None
        if last.answered and not last.keep_alive:  # a refused one
            self._transport.close()
        if last.received():
            self._arrived(last)

    # --- the order of answers

    def _arrived(self, inbound: Inbound) -> None:
        """Begin a request, once the client has read most of earlier answers."""
        if self.write_paused:
            self._ready = inbound
            return
        self._current = inbound
        if self._successor is None or inbound.stream is not None:
            inbound.begin()
        else:
            self._loop.call_soon(self.leave, self._successor)  # not now: the parser may have more

    def _answered(self, inbound: Inbound) -> None:
        """Turn to the next request after ``inbound``, or close.

        The rest of the body of a request that was refused is read first, while it comes and for a minute at most, and
        dropped: a close would reset the connection, and many clients that send would not see the answer.
        """
        self._current = None
        if self._read_paused:
            self.resume_reading()
        if not inbound.keep_alive and (self.between or inbound.expects):
            self._transport.close()
        elif self._unparsed:
            self._parse_later()  # a direct call would recurse once per request
            return
        self.idle_since = self._now()
        if self._successor is not None:
            self._loop.call_soon(self.leave, self._successor)

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = batched(transport, self._admission.writes)
        self.address = self.server.opened(self, self.check_silence, transport, self._loop)
        self.idle_since = self._now()
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        self.idle_since = NEVER
        if self.between and not self._unparsed and self._receive_known(data):
            return
        begins = self.between and not self._unparsed
        received = bytes(self._unparsed) + data if self._unparsed else data
        self._unparsed = memoryview(received) if len(received) > _MOST_AT_ONCE else received
        if not self._yields:
            self._steps = 0
            self._parse_on()
        if len(self._unparsed) > MOST_UNREAD:  # not before: a connection that is not read does not notice a disconnect
            if self._has_unanswered():
                self.pause_reading()
            elif self._yields:
                self._transport.pause_reading()
        elif begins and self.between and not self._unparsed:
            self._learn(data)

    def _has_unanswered(self) -> bool:
        """Whether a request has come that is not answered yet: what comes behind it waits."""
        return self.between and self._last is not None and not self._last.answered

    def _parse_on(self) -> None:
        """Parse what waits, piece by piece, up to the end of a request that is not answered at once.

        A read may have thousands of tiny chunks or requests. After many steps, other connections have a turn. Nothing
        is read meanwhile: uvloop reads dozens of times a turn.
        """
        while self._unparsed and not (self._read_paused or (self.between and self._has_unanswered())):
            if self._steps > _MOST_STEPS:
                self._transport.pause_reading()
                self._parse_later()
                return
            data = bytes(self._unparsed[:_MOST_AT_ONCE])
            end = self._pieces.take(data, in_body=not (self._in_head or self.between))
            self._unparsed = self._unparsed[end:]
            self._parse(data[:end])
            if self._transport.closed:
                self._unparsed = b""

    def _parse_later(self) -> None:
        if not self._yields:
            self._yields = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Parse on, and read on behind that."""
        if self._transport.is_closing():
            return
        self._steps, self._yields = 0, False
        self._parse_on()
        if not (self._yields or self._read_paused):
            self._transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        self._charged += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade:
                self._upgrade()
            if self._pieces.done:
                self._pieces.done = False
                if not self.between:
                    raise ambiguous_end()
        except (InvalidRequest, httptools.HttpParserError) as error:
            cause = error if isinstance(error, InvalidRequest) else error.__context__
            self._refuse(cause if isinstance(cause, InvalidRequest) else InvalidRequest(f"This is not HTTP: {error}"))
            return
        if self._charged > MOST_HEAD:
            self._refuse(head_too_large())

    def _receive_known(self, data: bytes) -> bool:
        """Take a whole request whose head is like an earlier one. The parser does not see it."""
        last = self._last
        if last is None or not last.answered or self._transport.closed:
            return False
        body = self._known.read(data)
        if body is None:
            return False
        if not self._known.is_same:
            self._repeated = repeated_headers(self._known)
        alike = self._known.meaning
        self._charged = 0
        self._last = inbound = Inbound(
            self._transport,
            self._admission,
            self._answered,
            self.address,
            b"POST",
            alike.target,
            self._admission.hot_paths[alike.target],
            self._repeated,
            self.keeps,
            True,
        )
        inbound.receive_whole(body)
        self._arrived(inbound)
        return True

    def _learn(self, data: bytes) -> None:
        """Learn the head of ``data`` if that was a request for an engine without any conditions.

        It begins with the request line, and has a line for each header. A page of a browser has an ``Origin``.
        """
        last, target = self._last, self._url
        if last is None or not last.keep_alive or last.expects or target not in self._admission.hot_paths:
            return
        headers, lines = last.headers, data.count(b"\r\n", 0, data.find(b"\r\n\r\n"))
        if lines != len(headers) or not data.startswith(b"POST %s HTTP/1.1\r\n" % target):
            return
        if b"origin" not in [name for name, _ in headers] and self._known.learn(data):
            self._known.meaning = AlikeHeads(target, headers)

    def _upgrade(self) -> None:
        """Let a handshake begin a WebSocket, and have any other request parsed again without ``Upgrade``.

        Else the parser would take everything after its head, the body included, for the other protocol.
        """
        if self._is_web_socket():
            behind = bytes(self._unparsed)
            self._let_go()
            self.server.open_web_socket(self._transport.released(), self._url, self._headers, behind)
            return
        version = self._parser.get_http_version()
        self._parser.feed_data(head_without_upgrade(self._parser.get_method(), self._url, version, self._headers))

    def eof_received(self) -> bool:
        """Treat a client that sends no more as gone, unless it waits for a page, whose answer is its last one.

        It may still read an answer that ends with the connection.
        """
        current = self._current
        if current is not None and current.awaits_page:
            current.keep_alive = False
            return True
        if current is not None and current.until_close:
            current.abort()
        self._transport.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        last, self._last = self._last, None
        self._current = self._ready = None
        if last is not None:
            last.client_disconnected()
        self._let_go()

    def _let_go(self) -> None:
        """Drop what refers back to this connection: the cycles would wait for the garbage collector."""
        self.server.closed(self, self.check_silence)
        self._parser = None
        self._unparsed = b""

    def pause_reading(self) -> None:
        """Read no more from the client until ``resume_reading``."""
        if not self._read_paused:
            self._read_paused = True
            if not self._yields:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless much waits for its turn."""
        if self._read_paused and not (len(self._unparsed) > MOST_UNREAD and self._has_unanswered()):
            self._read_paused = False
            if self._unparsed:
                self._parse_later()
            elif not self._yields:
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._current is not None and self._current.exchange is not None:
            self._current.exchange.pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        ready = self._ready
        if ready is not None and not self._transport.is_closing():
            self._ready = None
            self._arrived(ready)
        elif self._current is not None and self._current.exchange is not None:
            self._current.exchange.resume()

    # --- the end

    def shutdown(self) -> None:
        """Close the connection after the answers under way, unless another gateway gets it."""
        if self._successor is not None:
            return
        self.keeps = False
        if self._last is not None and not self._last.answered:
            self._last.keep_alive = False
        elif self._last is not None and self._now() - self.idle_since < 1.0:
            self._loop.call_later(_LAST_REQUEST_S, self._close_idle)
        else:
            self._transport.close()

    def _close_idle(self) -> None:
        if self.between and (self._last is None or self._last.answered):
            self._transport.close()

    def _refuse(self, error: InvalidRequest) -> None:
        """Answer 400 and close. No second answer to a request that has one, and in the middle of one only break off."""
        if self._transport.is_closing():
            return
        _log.warning("Refused: %s", error.message)
        last = self._last
        if last is not None and not last.answered and last.started:
            self._break_off()
            return
        if not self._reads_rest():
            self._transport.write(self.server.last_response(self._url, error))
        self._transport.close()
        if last is not None and last.stream is not None:
            last.stream.disconnect()

    def _reads_rest(self) -> bool:
        """Whether the body of a request arrives that is already answered."""
        return not (self._in_head or self.between) and self._last is not None and self._last.answered

    def _break_off(self) -> None:
        """Break the connection, so that the client sees that its answer is cut off."""
        if self._current is not None:
            self._current.abort()
        else:
            self._transport.abort()

    def check_silence(self, now: float) -> None:
        """Close the connection if the client has been silent for too long. Called every second."""
        transport = self._transport
        unread, limit = transport.get_write_buffer_size(), self._admission.client_timeout
        if not unread or unread != self._unread:
            self._unread, self._unread_since = unread, now
        elif limit and now - self._unread_since > limit:
            self._break_off()
        if self._successor is not None:
            self.leave(self._successor)
        if now - self.idle_since > (_KEEP_ALIVE_S if self.between else _REST_WITHIN_S):
            transport.close()
        elif self._waits_for_client():
            self._charged += _A_SECOND
            if self._charged > MOST_HEAD:
                transport.abort()

    def _waits_for_client(self) -> bool:
        """Whether a request has begun to arrive and the gateway waits for the rest of it."""
        last = self._last
        if last is None or last.answered:
            return self._charged > 0 or not self.between
        return not last.whole and not self._read_paused

    # --- to another gateway

    def leave(self, pass_on: PassOn) -> None:
        """Give the connection to another gateway by ``pass_on``, now or after the answers under way."""
        self._successor = pass_on
        if self._transport.is_closing():
            return
        received = self._unanswered()
        if received is not None:
            self._pass_connection(pass_on, received, b"")
        elif self._current is not None and self._current.exchange is None:
            self._current.begin()

    def pass_stream(self, pass_on: PassOn) -> None:
        """Give the connection to another gateway in the middle of a stream that it can continue."""
        current = self._current
        if current is None or self._transport.is_closing() or not self._in_order():
            return
        saved = current.save_stream()
        if saved is not None:
            self._pass_connection(pass_on, *saved)

    def _pass_connection(self, pass_on: PassOn, received: bytes, stream: bytes) -> None:
        try:
            pass_on(self._transport.get_extra_info("socket").fileno(), received, stream)
        except OSError as error:  # this process can have no more descriptors
            _log.warning("A client's connection was not passed on, and is closed: %s", error.strerror)
        self._transport.abort()  # closes only this process's descriptor

    def _in_order(self) -> bool:
        """Whether no other request is there, and everything has been sent."""
        in_order = self.between and self._ready is None and not self._unparsed
        return in_order and not self._transport.get_write_buffer_size()

    def _unanswered(self) -> bytes | None:
        """What the client has sent for its next answer; ``None`` unless the connection can be passed on now.

        A request that an engine or a page has is answered first.
        """
        if not self._in_order():
            return None
        if self._current is not None:
            return self._current.take_back()
        return b"" if self._last is None or self._last.answered else None


def repeated_headers(known: KnownHead[AlikeHeads]) -> RepeatedHeaders:
    """The headers of the head that was read last."""
    alike = known.meaning
    headers = RepeatedHeaders(alike.headers)
    headers.traceparent, headers.request_id = alike.traceparent, alike.request_id
    headers.passing, headers.wants_cache_line = alike.passing, alike.wants_cache_line
    values = known.values
    for number, place in enumerate(known.places):
        name, value = headers[place][0], values[number]
        headers[place] = (name, value)
        if name == b"traceparent":
            headers.traceparent = value
        elif name == b"x-request-id":
            headers.request_id = value
    return headers
