"""HTTP as the engine speaks it: connections, and one request and its response.

The engine has its own protocol on httptools, because its faults break HTTP itself: they cut connections before the
first byte, and write garbage past the framing. ASGI has no way to do either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NoReturn, TypeVar, cast
from urllib.parse import parse_qs, unquote

import httptools
import msgspec

from enginehouse import InvalidRequest

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
"""The end of a stream."""
_BACKLOG = 2048
_PHRASES = {int(status): status.phrase.encode() for status in HTTPStatus}
_log = logging.getLogger(__name__)


class ResponseHooks:
    """Acts while a response is sent. Every kind of fault is one."""

    __slots__ = ()

    async def at_start(self, call: Call, stream: bool) -> None:
        """Act before the first byte of the response."""

    async def at_body(self, call: Call, body: bytes) -> bytes:
        """Act after the headers of a response sent at once. Return the body to send."""
        return body

    async def after_chunk(self, call: Call) -> None:
        """Act after a chunk of a stream; ``call.chunks`` is its number, from 1."""


class Call:
    """A request read as a whole, and the only way to respond: at once, or as a stream of events.

    ``hooks`` may disturb the response. ``streams``: whether a stream has begun; ``chunks``: the number of chunks sent.
    """

    def __init__(self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        path, _, self._query = target.partition("?")
        self.path = unquote(path)
        self.hooks: ResponseHooks | None = None
        self.streams = False
        self.chunks = 0
        self.connection: Connection

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header ``name`` (lower case), or ``None``."""
        return next((value for key, value in self.headers if key == name), None)

    def parameter(self, name: str, default: str) -> str:
        return parse_qs(self._query).get(name, [default])[0]

    def decode(self, type: type[T]) -> T:
        """The body as ``type``. Raises ``InvalidRequest`` for any other body."""
        try:
            return msgspec.json.decode(self.body, type=type)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest(f"The body cannot be understood: {error}") from None

    async def json(self, value: object, status: int = 200) -> None:
        await self.answer(msgspec.json.encode(value), b"application/json", status)

    async def answer(self, body: bytes, content_type: bytes, status: int = 200) -> None:
        if self.hooks:
            await self.hooks.at_start(self, stream=False)
        head = _head(status, content_type, b"content-length: %d" % len(body), self.connection.keeps_alive)
        if self.hooks:
            await self.connection.write(head)
            head, body = b"", await self.hooks.at_body(self, body)
        await self.connection.write(head if self.method == "HEAD" else head + body)

    async def open_stream(self) -> None:
        if self.hooks:
            await self.hooks.at_start(self, stream=True)
        content = b"text/event-stream; charset=utf-8"
        await self.connection.write(_head(200, content, b"transfer-encoding: chunked", self.connection.keeps_alive))
        self.streams = True

    async def event(self, value: object) -> None:
        """Send one event in one write, and give other tasks a turn."""
        await self.part(b"data: " + msgspec.json.encode(value) + b"\n\n")
        self.chunks += 1
        if self.hooks:
            await self.hooks.after_chunk(self)
        await asyncio.sleep(0)

    async def close_stream(self, last: bytes = b"") -> None:
        """End the stream with ``last`` as its last bytes."""
        await self.connection.write((_chunk(last) if last else b"") + b"0\r\n\r\n")

    async def part(self, body: bytes) -> None:
        """Send a part of the body."""
        await self.connection.write(_chunk(body) if self.streams else body)

    async def hang_up(self, garbage: bytes = b"") -> NoReturn:
        """Write ``garbage`` past HTTP's framing, and close the connection. Does not return: the task is cancelled."""
        self.connection.hang_up(garbage)
        await asyncio.get_running_loop().create_future()  # cancelled once the connection is gone
        raise AssertionError


def _head(status: int, content_type: bytes, length: bytes, keeps_alive: bool) -> bytes:
    line = b"HTTP/1.1 %d %s" % (status, _PHRASES.get(status, b""))  # a fault may have a status without a name
    closing = b"" if keeps_alive else b"\r\nconnection: close"
    return b"%s\r\ncontent-type: %s\r\n%s%s\r\n\r\n" % (line, content_type, length, closing)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """A client's connection, which serves its requests one after the other.

    ``keeps_alive``: whether another request may follow the current one. When the client closes the connection, the task
    of the current request is cancelled.
    """

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._waiting: deque[tuple[Call, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.keeps_alive = True

    # --- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.connections.discard(self)
        self._may_write.set()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.write(_head(400, b"text/plain", b"content-length: 0", keeps_alive=False))
            self._transport.close()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # --- from the parser

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if any(name == b"expect" and value.lower() == b"100-continue" for name, value in self._headers):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        method, target = self._parser.get_method().decode(), self._target.decode("latin-1")
        call = Call(method, target, self._headers, b"".join(self._parts))
        call.connection = self
        self._waiting.append((call, self._parser.should_keep_alive()))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve())
        else:
            self._transport.pause_reading()

    # --- for the calls

    async def write(self, data: bytes) -> None:
        if not self._may_write.is_set():
            await self._may_write.wait()
        if data:
            self._transport.write(data)

    def hang_up(self, garbage: bytes) -> None:
        if garbage:
            self._transport.write(garbage)
        self._transport.close()

    # --- for the listener

    async def close(self) -> None:
        """Cut the connection, and wait for the end of the current request."""
        self._transport.abort()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def close_if_idle(self) -> None:
        """Close the connection, or have it closed after the current request."""
        self._waiting = deque((call, False) for call, _ in self._waiting)
        self.keeps_alive = False
        if self._task is None:
            self._transport.close()

    async def _serve(self) -> None:
        try:
            while self._waiting:
                call, self.keeps_alive = self._waiting.popleft()
                if not self._waiting:
                    self._transport.resume_reading()
                await self._listener.serve(call)
                if not self.keeps_alive:
                    self._transport.close()
        except asyncio.CancelledError:
            pass
        except Exception:
            _log.exception("a request failed")
            self._transport.abort()
        finally:
            self._task = None


class HttpListener:
    """One address whose requests ``serve`` answers. Port 0 picks a free one.

    Raises ``OSError`` if the address cannot be used.
    """

    def __init__(self, serve: Callable[[Call], Awaitable[None]], host: str, port: int) -> None:
        self.serve = serve
        self.connections: set[Connection] = set()
        self._socket = _bind(host, port)
        self._name: tuple[str, int] = self._socket.getsockname()[:2]
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        host, port = self._name
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def accept(self) -> None:
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: Connection(self), sock=self._socket, backlog=_BACKLOG)

    def refuse(self) -> None:
        """Refuse new connections, and keep the port. Requests in progress continue; idle connections are closed."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._socket = _bind(*self._name)
            for connection in list(self.connections):
                connection.close_if_idle()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(connection.close() for connection in list(self.connections)))
        self._socket.close()


def _bind(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
