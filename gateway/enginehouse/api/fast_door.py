"""The fast door: uvicorn's HTTP protocol, with the hot endpoints kept to itself.

A request for one of them never becomes an ASGI scope or a task: its exchange is driven by the parser's callbacks. Every
other request goes to the application unchanged.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from enginehouse.api.entrance import Entrance
from enginehouse.api.framing import check_framing, head_without_upgrade
from enginehouse.domain.errors import InvalidRequest, RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.attempt import NEVER
from enginehouse.relay.door import Caller
from enginehouse.relay.exchange import Exchange

_MOST_WAITING = 16
_MOST_UNHEARD = 64 * 1024
_A_SECOND = 1024
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def status_line(status: int) -> bytes:
    """The first line of a response."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


class Inbound:
    """One hot request on a connection: a ``Door`` to its exchange.

    It stands where uvicorn keeps its request-response cycle, so it has the attributes that uvicorn's protocol looks at.
    ``waits``: a request before it is not answered yet. ``expects``: its client sends the body when it is told to.
    """

    def __init__(self, connection: FastDoor, path: str, headers: Headers, keep_alive: bool, chunks: bool) -> None:
        self._connection = connection
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
            self._caller = self._connection.entrance.enter(self._headers)
        except RequestError as error:
            self._turn_away(error)

    def receive(self, body: bytes) -> None:
        """A piece of the body."""
        if not self.whole:
            self._length += len(body)
            self._pieces.append(body)
            if self._length > self._connection.entrance.max_body:
                self._turn_away(self._connection.entrance.too_large())
            elif self.waits and self._length > HIGH_WATER_LIMIT:
                self._connection.flow.pause_reading()

    def received(self) -> None:
        """The body is whole."""
        if not self.whole:
            self.whole = True
            self._connection.arrived(self)

    def _turn_away(self, error: RequestError) -> None:
        """Answer with ``error`` without reading the rest."""
        self._error = error
        self._pieces.clear()
        self.keep_alive = False
        self.received()

    def begin(self) -> None:
        """The request is whole and its turn has come."""
        self.exchange = exchange = self._connection.entrance.relay.open(self, self._path, self._headers)
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
        if status == 204:
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
            self._connection.transport.write(b"%s%x\r\n%s\r\n" % (head, len(chunk), chunk))
        else:
            self._connection.transport.write(head + chunk if head else chunk)

    def finish(self, chunk: bytes) -> None:
        """Send the last piece and turn to the connection's next request."""
        head, self._head = self._head, b""
        if self._chunked:
            last = b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk) if chunk else b"0\r\n\r\n"
            self._connection.transport.write(head + last)
        elif head or chunk:
            self._connection.transport.write(head + chunk)
        self.response_complete = True
        self.exchange = None
        self._connection.answered(self)

    def abort(self) -> None:
        """Break the connection."""
        self.response_complete = True
        transport = self._connection.transport
        if self._until_close:  # only a reset tells this client that the answer is not whole
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


class FastDoor(HttpToolsProtocol):
    """A client's connection. ``entrance`` and ``_cors`` are set by ``fast_door``.

    ``cycle`` is the request received last, ``_current`` the hot one being answered; pipelining makes them differ.
    ``_held`` is a hot one whose turn has come and that waits until the client has read earlier answers, ``_cold`` one
    that the application answers while others wait behind it.
    ``_unheard`` counts the bytes since the last whole head or piece of a body; each second that the client lets the
    gateway wait for more counts as one KiB. So no head is endless, and none takes much longer than a minute.
    """

    entrance: Entrance
    cycle: Any
    idle_since = NEVER
    _idlers: Idlers
    _current: Inbound | None = None
    _held: Inbound | None = None
    _cold: Any = None
    _unheard = 0
    _cors = False

    # --- from the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """The head is whole: keep the request, or pass it on to the application."""
        self._unheard = 0
        version = self.parser.get_http_version()
        check_framing(version, self.headers)
        if self.transport.is_closing():
            raise InvalidRequest("There is nothing to say after the last request")
        if self.parser.should_upgrade():
            self._asked_to_upgrade()
            return
        path = self.entrance.hot_paths.get(self.url)
        if path is None or self.parser.get_method() != b"POST" or (self._cors and self._from_browser()):
            self._pass_on()
            self.headers = []  # so that no trailer passes for a header
            return
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        previous = self.cycle
        self.cycle = inbound = Inbound(self, path, self.headers, keep_alive, version != "1.0")
        self.headers = []
        inbound.expects = self.expect_100_continue
        if previous is not None and not previous.response_complete:
            inbound.waits = True
            self.pipeline.appendleft((cast(Any, inbound), self.app))
            self._queued_behind(previous)
        inbound.enter()
        if inbound.expects:
            self._send_on(inbound)

    def _asked_to_upgrade(self) -> None:
        """Let only a WebSocket through; ``_feed`` then ignores the wish for any other protocol."""
        if self.parser.get_method() == b"CONNECT":
            raise InvalidRequest("CONNECT is not spoken here: this is no forward proxy")
        if self._should_upgrade():
            if self.cycle is not None and not self.cycle.response_complete:
                raise InvalidRequest("A connection becomes a WebSocket only after its last answer")
            self._pass_on()

    def _from_browser(self) -> bool:
        return any(name == b"origin" for name, _ in self.headers)

    def _pass_on(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        previous = self.cycle
        super().on_headers_complete()
        if self.pipeline:
            self._queued_behind(previous)

    def _queued_behind(self, previous: Any) -> None:
        """A request has been put into the pipeline; read on all the same, for else nobody notices a client that leaves.

        Only a long pipeline, and in ``Inbound`` a long body, have to wait.
        """
        if len(self.pipeline) == 1 and not isinstance(previous, Inbound):
            self._cold = previous
        if len(self.pipeline) < _MOST_WAITING:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    def _send_on(self, inbound: Inbound) -> None:
        """Tell the client to send the body, if that is wanted and its turn has come."""
        if not inbound.waits and not inbound.whole:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of a request's body."""
        cycle = self.cycle
        if isinstance(cycle, Inbound):
            self._unheard = 0
            cycle.receive(body)
        elif not cycle.response_complete:
            self._unheard = 0
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._unheard = 0
        if self.headers:  # this is a request that _feed parses once more, or there were trailers
            if self.parser.should_upgrade():
                return
            self.cycle.keep_alive = self.cycle.keep_alive and self.parser.should_keep_alive()
        if isinstance(self.cycle, Inbound):
            self.cycle.received()
        else:
            super().on_message_complete()

    # --- from the requests

    def arrived(self, inbound: Inbound) -> None:
        """``inbound`` is whole, and begins when its turn has come and the client has read most of earlier answers."""
        if inbound.waits:
            return
        if self.flow.write_paused:
            self._held = inbound
            return
        self._current = inbound
        inbound.begin()

    def answered(self, inbound: Inbound) -> None:
        """``inbound`` has its answer."""
        self._current = None
        if not inbound.keep_alive:
            self.transport.close()
        if self.pipeline or not inbound.keep_alive:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.idle_since = self.loop.time()

    def on_response_complete(self) -> None:
        """Turn to the next request, or wait for one."""
        following = self.pipeline[-1][0] if self.pipeline else None
        if not isinstance(following, Inbound) or self.transport.is_closing():
            self._cold = None if isinstance(following, Inbound) else following
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.pipeline.pop()
        self._cold = None
        self.loop.call_soon(self._turn_to, following)  # at once, a long pipeline would become a deep recursion

    def _turn_to(self, inbound: Inbound) -> None:
        if self.transport.is_closing():
            return
        inbound.waits = False
        self.flow.resume_reading()
        if inbound.whole:
            self.arrived(inbound)
        elif inbound.expects:
            self._send_on(inbound)

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._idlers.add(self)

    def data_received(self, data: bytes) -> None:
        """The client sends something."""
        self.idle_since = NEVER
        self._unheard += len(data)
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, InvalidRequest) else InvalidRequest(f"This is no HTTP: {error}"))
            return
        if self._unheard > _MOST_UNHEARD:
            self._refuse(InvalidRequest(f"More than {_MOST_UNHEARD} bytes of head"))

    def _feed(self, data: bytes) -> None:
        """Parse ``data``, and requests that ask for another protocol once more without that.

        The parser takes everything that follows them for that protocol, their body included.
        """
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self._idlers.discard(self)
                    self.handle_websocket_upgrade()
                    return
                rest = memoryview(rest)[upgrade.args[0] :]
            version = self.parser.get_http_version()
            self.parser.feed_data(head_without_upgrade(self.parser.get_method(), self.url, version, self.headers))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, and with it all its requests."""
        self._idlers.discard(self)
        current, self._current, self._held = self._current, None, None
        if isinstance(self.cycle, Inbound):
            self.cycle = None
        if self._cold is not None:
            self._cold.disconnected = True
            self._cold.message_event.set()
        super().connection_lost(exc)
        self.pipeline.clear()
        if current is not None:
            current.client_gone()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        super().pause_writing()
        if self._current is not None and self._current.exchange is not None:
            self._current.exchange.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        held, self._held = self._held, None
        if held is not None and not self.transport.is_closing():
            self.arrived(held)
        elif self._current is not None and self._current.exchange is not None:
            self._current.exchange.resume()

    def _refuse(self, error: InvalidRequest) -> None:
        """Answer what cannot be understood; in the middle of an answer there is nothing left but to break off."""
        if self.transport.is_closing():
            return
        self.logger.warning("Refused: %s", error.message)
        if self._answering():
            self.transport.abort()
            return
        body = msgspec.json.encode(error.envelope())
        self.transport.write(
            status_line(400)
            + b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()

    def _answering(self) -> bool:
        """Whether an answer is, or may be, on its way to the client."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return bool(self.pipeline) or not isinstance(cycle, Inbound) or cycle.exchange is not None

    # --- from the idlers

    def look(self, now: float) -> None:
        """Close the connection if its client lets it wait for too long; called every second."""
        if now - self.idle_since > self.timeout_keep_alive:
            self.transport.close()
        elif self._waits_for_client():
            self._unheard += _A_SECOND
            if self._unheard > _MOST_UNHEARD:
                self.transport.abort()

    def _waits_for_client(self) -> bool:
        """Whether a request has begun to arrive, and only its client can bring it further."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return self._unheard > 0
        whole = cycle.whole if isinstance(cycle, Inbound) else not cycle.more_body
        return not whole and not self.pipeline and not self.flow.read_paused


class Idlers:
    """Has every connection look every second at how long it has waited for its client.

    One sweep for all of them is cheaper than a timer for every answer.
    """

    def __init__(self) -> None:
        self._connections: set[FastDoor] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: FastDoor) -> None:
        """Watch a connection."""
        self._connections.add(connection)
        if self._timer is None:
            self._timer = connection.loop.call_later(1, self._sweep, connection.loop)

    def discard(self, connection: FastDoor) -> None:
        """The connection is closed."""
        self._connections.discard(connection)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self._connections):
            connection.look(now)
        self._timer = loop.call_later(1, self._sweep, loop) if self._connections else None


def fast_door(entrance: Entrance, *, cors: bool) -> type[FastDoor]:
    """The protocol class to give to uvicorn as its ``http``; ``cors`` leaves browsers to the application."""
    return type("FastDoor", (FastDoor,), {"entrance": entrance, "_cors": cors, "_idlers": Idlers()})
