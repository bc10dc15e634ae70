"""A client's WebSocket."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from websockets.datastructures import Headers as SocketHeaders
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

from enginehouse import Headers
from enginehouse.errors import Overloaded
from enginehouse.web_sockets import MessageShare

_log = logging.getLogger(__name__)

_NORMAL, _NO_CODE, _BROKEN, _NOT_TEXT, _FAILED, _RESTART, _TRY_LATER = 1000, 1005, 1006, 1007, 1011, 1012, 1013
_PING_EVERY_S: Final = 20.0
_PONG_WITHIN_S: Final = 120.0
"""Not shorter than an engine may stall: a client's pong waits behind messages that the engine has not yet taken."""
_CLOSE_WITHIN_S: Final = 10.0
_MOST_PINGS: Final = 1000
"""While a client reads nothing: the answers to its pings wait for it, and no message does."""
_PIECE: Final = 4096
"""Bytes that are parsed at once. Compressed, they may be a thousand times as many of messages, and all are kept."""


class Farewell(NamedTuple):
    """The end of one side of a WebSocket: the code and the reason of its close frame.

    The code is 1005 if the frame has none, and 1006 if there is no frame (RFC 6455, 7.4.1).
    """

    code: int
    reason: str = ""


class ClientWebSocket(asyncio.Protocol):
    """The client's side of a WebSocket (RFC 6455), in place of the HTTP connection.

    ``largest``: the size limit of a message in bytes. ``share``: counts what is held of messages. ``connections``: the
    server's, which this joins while it is open. It reads the next message when the last one was taken.
    """

    def __init__(self, transport: asyncio.Transport, largest: int, share: MessageShare, connections: set[Any]) -> None:
        self.subprotocols: Sequence[str] = ()
        self._transport = transport
        self._share = share
        self._connections = connections
        deflate = ServerPerMessageDeflateFactory(
            server_max_window_bits=12, client_max_window_bits=12, compress_settings={"memLevel": 5}
        )
        self._protocol = ServerProtocol(extensions=[deflate], max_size=largest, logger=_log)
        self._response: Response | None = None
        self._unread = bytearray()
        self._messages: deque[str | bytes] = deque()
        self._whole = 0  # bytes of messages, until those that come behind them are asked for
        self._pieces = bytearray()  # a list of tiny pieces would take many times their bytes
        self._is_text = False
        self._farewell: Farewell | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reads = True
        self._is_lost = False
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._pinged_at: float | None = None
        self._pings = 0

    def open(
        self,
        url: bytes,
        headers: Headers,
        behind: bytes,
        serve: Callable[[], Coroutine[Any, Any, None]],
        tasks: set[asyncio.Task[None]],
    ) -> None:
        """Check the handshake, and ``serve`` the client in a task if it is right, else answer and close.

        ``behind``: what the client sent after it.
        """
        self._connections.add(self)
        self._transport.set_protocol(self)
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self._protocol.receive_data(b"GET %s HTTP/1.1\r\n%s\r\n" % (url, lines))
        request = next(iter(self._protocol.events_received()), None)
        if not isinstance(request, Request):
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self._hang_up()
            return
        self._response = response = self._protocol.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._send_response(response)
            return
        offers = request.headers.get_all("Sec-WebSocket-Protocol")
        self.subprotocols = [token.strip() for offer in offers for token in offer.split(",")]
        if behind:
            self.data_received(behind)
        self._task = task = self._loop.create_task(self._serve(serve))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: self._let_go())

    async def _serve(self, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        code = _NORMAL
        try:
            await serve()
        except Exception:
            _log.exception("A WebSocket failed")
            code = _FAILED
        if self._protocol.state is State.CONNECTING:
            await self.refuse(500, [], b"Internal Server Error")
        else:
            await self.close(Farewell(code))

    # --- to the client

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        response = self._response
        if response is None or self._protocol.state is not State.CONNECTING or self._transport.is_closing():
            return
        if subprotocol is not None:
            response.headers["Sec-WebSocket-Protocol"] = subprotocol
        for name, value in headers:
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_response(response)
        self._flush()
        self._timer = self._loop.call_later(_PING_EVERY_S, self._ping)

    async def refuse(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer the handshake with an HTTP response."""
        if self._protocol.state is not State.CONNECTING or self._transport.is_closing():
            return
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        self._send_response(Response(status, phrase, SocketHeaders(pairs), body))

    async def receive(self) -> str | bytes | Farewell:
        """The client's next message, or the end of the WebSocket."""
        while not self._messages:
            if self._farewell is not None:
                return self._farewell
            self._changed.clear()
            self._whole = 0
            if self._unread:
                self._parse()
                continue
            self._count()
            if not self._reads:
                self._reads = True
                self._transport.resume_reading()
            await self._changed.wait()
        return self._messages.popleft()

    async def send(self, message: str | bytes) -> None:
        """Send a message, once the client has read most of the earlier ones."""
        await self._writable.wait()
        if self._protocol.state is not State.OPEN:
            return
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)
        self._flush()

    async def close(self, farewell: Farewell) -> None:
        """Send a close frame, and close the connection when the client has answered it, or no longer reads."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(farewell.code, farewell.reason)
            self._flush()
            self._end(farewell)
            self._parse()  # the client's close frame may be there already
            if self._transport.is_closing():
                return
            if not self._reads:
                self._reads = True
                self._transport.resume_reading()
            self._await_reader()
        elif self._protocol.state is State.CONNECTING:
            await self.refuse(403, [], b"")

    def _send_response(self, response: Response) -> None:
        response.headers.setdefault("Connection", "close")
        response.headers.setdefault("Content-Length", str(len(response.body or b"")))
        self._protocol.send_response(response)
        self._flush()
        self._end(Farewell(_BROKEN))
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection once the client has read what it was sent, or has read nothing of it for a while."""
        self._transport.close()
        if not self._is_lost:
            self._await_reader()

    def _await_reader(self, before: int | None = None) -> None:
        """Cut the client off if it has still not read all but the last ``before`` bytes, and look again if it has."""
        left = self._transport.get_write_buffer_size()
        if before is not None and left >= before:
            self._transport.abort()
        else:
            self._set_timer(_CLOSE_WITHIN_S, partial(self._await_reader, left))

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data == SEND_EOF:
                self._hang_up()
            elif not self._transport.is_closing():
                self._transport.write(data)

    # --- from the transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._parse()

    def _parse(self) -> None:
        """Parse what has come, until there is a message that nobody has taken yet."""
        while self._unread and (self._farewell is not None or not self._messages):
            self._protocol.receive_data(bytes(self._unread[:_PIECE]))
            del self._unread[:_PIECE]
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    self._take(event)
            self._count()
            self._flush()
            if self._protocol.parser_exc is not None:
                sent = self._protocol.close_sent
                self._end(Farewell(_BROKEN) if sent is None else Farewell(sent.code, sent.reason))
                self._unread.clear()
                self._hang_up()

    def _count(self) -> None:
        """Count what is held, and end the WebSocket if there is no room for it."""
        try:
            self._share.hold(len(self._unread) + len(self._protocol.reader.buffer) + len(self._pieces) + self._whole)
        except Overloaded:
            self._protocol.fail(_TRY_LATER, "the gateway holds too much (server.max_body_memory)")
            self._pieces = bytearray()
            self._end(Farewell(_TRY_LATER))

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            received = self._protocol.close_rcvd
            self._end(Farewell(_NO_CODE) if received is None else Farewell(received.code, received.reason))
        elif frame.opcode is Opcode.PONG:
            self._pinged_at = None
        elif frame.opcode is Opcode.PING:  # the protocol answers it
            self._pings += not self._writable.is_set()
            if self._pings > _MOST_PINGS:
                self._end(Farewell(_BROKEN))
                self._transport.abort()
        else:
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
                self._pieces.clear()
            self._pieces += frame.data
            if frame.fin:
                self._take_message(bytes(self._pieces))

    def _take_message(self, data: bytes) -> None:
        self._pieces = bytearray()
        if self._farewell is not None:
            return
        self._whole += len(data)
        try:
            self._messages.append(data.decode() if self._is_text else data)
        except UnicodeDecodeError:
            self._protocol.fail(_NOT_TEXT)
            self._end(Farewell(_NOT_TEXT))
            return
        self._changed.set()
        if self._reads:
            self._reads = False
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._flush()
        self._end(Farewell(_BROKEN))

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._connections.discard(self)
        self._end(Farewell(_BROKEN))
        self._set_timer(None)
        self._let_go()

    def _let_go(self) -> None:
        """Hold nothing any more, if nobody can ask for it."""
        if self._is_lost and (self._task is None or self._task.done()):
            self._share.hold(0)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._pings = 0

    def shutdown(self) -> None:
        """The server stops."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(_RESTART)
            self._flush()
            self._end(Farewell(_RESTART))
        self._hang_up()

    def _end(self, farewell: Farewell) -> None:
        """The client says nothing more, or what it says is dropped; the first reason counts."""
        self._farewell = self._farewell or farewell
        self._changed.set()
        self._writable.set()

    # --- the pulse

    def _ping(self) -> None:
        """Notice a client that is gone without a word."""
        if self._protocol.state is not State.OPEN:
            return
        now = self._loop.time()
        if self._pinged_at is None:
            self._pinged_at = now
            self._protocol.send_ping(b"")
        elif now - self._pinged_at > _PONG_WITHIN_S:
            self._protocol.fail(_FAILED, "no answer to a ping")
            self._flush()
            self._end(Farewell(_BROKEN))
            self._hang_up()
            return
        self._flush()
        self._set_timer(_PING_EVERY_S, self._ping)

    def _set_timer(self, seconds: float | None, call: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call) if seconds is not None and call is not None else None
