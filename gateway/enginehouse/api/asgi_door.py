"""The ASGI door: the relay as a plain ASGI application, for other servers, TLS set-ups and tests."""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.types import Message, Receive, Scope, Send

from enginehouse.api.entrance import Entrance
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Caller
from enginehouse.relay.exchange import Exchange
from enginehouse.relay.headers import read_lines

BODILESS = frozenset({204, 304})
"""Statuses whose answers have no body, so that a length says nothing of it."""
_MOST_BUFFERED = 64 * 1024


class Outbound:
    """A ``Door`` that turns what it is given into ASGI messages, with backpressure on the engine."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.aborted = False
        self._messages: deque[Message] = deque()
        self._buffered = 0
        self._paused = False
        self._filled = asyncio.Event()

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        """Queue the head."""
        headers = without_date(read_lines(lines))
        if length is not None and status not in BODILESS:
            headers.append((b"content-length", b"%d" % length))
        self._put({"type": "http.response.start", "status": status, "headers": headers}, 0)

    def write(self, chunk: bytes) -> None:
        """Queue a piece; stop the engine if too much waits."""
        self._put({"type": "http.response.body", "body": chunk, "more_body": True}, len(chunk))
        if self._buffered > _MOST_BUFFERED and not self._paused and self.exchange is not None:
            self._paused = True
            self.exchange.pause()

    def finish(self, chunk: bytes) -> None:
        """Queue the last piece."""
        self._put({"type": "http.response.body", "body": chunk, "more_body": False}, len(chunk))

    def abort(self) -> None:
        """Stop without an end; the server then breaks the connection."""
        self.aborted = True
        self._filled.set()

    async def send_all(self, send: Send) -> None:
        """Send what is queued, until the end or an abort."""
        more = True
        while more and not self.aborted:
            await self._filled.wait()
            self._filled.clear()
            while self._messages:
                message = self._messages.popleft()
                await send(message)
                more = message.get("more_body", True)
                self._sent(len(message.get("body", b"")))

    def _put(self, message: Message, size: int) -> None:
        self._messages.append(message)
        self._buffered += size
        self._filled.set()

    def _sent(self, size: int) -> None:
        self._buffered -= size
        if self._paused and self._buffered <= _MOST_BUFFERED // 2 and self.exchange is not None:
            self._paused = False
            self.exchange.resume()


class AsgiDoor:
    """An ASGI application for the inference endpoints."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay one request."""
        headers = headers_of(scope)
        out = Outbound()
        out.exchange = exchange = self._open(out, scope, headers)
        try:
            await self._relay(exchange, out, headers, receive, send)
        finally:
            exchange.client_gone()

    def _open(self, out: Outbound, scope: Scope, headers: Headers) -> Exchange:
        return self._entrance.relay.open(out, scope["path"], headers)

    def _enter(self, headers: Headers) -> Caller | None:
        return self._entrance.enter(headers)

    async def _relay(self, exchange: Exchange, out: Outbound, headers: Headers, receive: Receive, send: Send) -> None:
        try:
            caller = self._enter(headers)
            body = await self._body(receive)
            if body is None:
                return
            exchange.begin(body, caller)
        except RequestError as error:
            exchange.cancel(error)
        leaving = asyncio.ensure_future(_client_leaves(receive, exchange, out))
        try:
            await out.send_all(send)
        finally:
            leaving.cancel()

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, or ``None`` when the client left. Raises ``BodyTooLarge``."""
        pieces: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            length += len(piece)
            if length > self._entrance.max_body:
                raise self._entrance.too_large()
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)


def headers_of(scope: Scope) -> Headers:
    """The headers of a request or of a WebSocket's handshake."""
    return [(name.lower(), value) for name, value in scope["headers"]]


def without_date(headers: Headers) -> Headers:
    """``headers`` without the engine's ``Date``, to which an ASGI server adds its own."""
    return [header for header in headers if header[0] != b"date"]


async def _client_leaves(receive: Receive, exchange: Exchange, out: Outbound) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.client_gone()
    out.abort()
