"""The ASGI door: the relay as a plain ASGI application, for other servers, for TLS and for tests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from starlette.types import Message, Receive, Scope, Send

from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.body_memory import BodyShare
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Caller, Door, OpenExchange
from enginehouse.relay.heads.headers import read_lines
from enginehouse.relay.relay import shutting_down

_log = logging.getLogger(__name__)

BODILESS = frozenset({204, 304})
"""Statuses of responses without a body (RFC 9112, 6.3)."""
_MOST_BUFFERED = 64 * 1024
Opens = Callable[[Door, str, Headers], OpenExchange]
"""Makes the exchange of a request from its door, its path and its headers."""


class Outbound(Door):
    """A ``Door`` that writes ASGI messages. It pauses the engine while the client reads too slowly."""

    def __init__(self, address: str = "") -> None:
        self._address = address
        self.exchange: OpenExchange | None = None
        self.aborted = False
        self._messages: deque[Message] = deque()
        self._begun = False
        self._buffered = 0
        self._paused = False
        self._filled = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._address

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        headers = without_date(read_lines(lines))
        if length is not None and status not in BODILESS:
            headers.append((b"content-length", b"%d" % length))
        self._put({"type": "http.response.start", "status": status, "headers": headers}, 0)

    def write(self, chunk: bytes) -> None:
        """Queue a piece. Pause the engine if too much is queued."""
        self._put({"type": "http.response.body", "body": chunk, "more_body": True}, len(chunk))
        if self._buffered > _MOST_BUFFERED and not self._paused and self.exchange is not None:
            self._paused = True
            self.exchange.pause()

    def finish(self, chunk: bytes) -> None:
        self._put({"type": "http.response.body", "body": chunk, "more_body": False}, len(chunk))

    def unread(self) -> int:
        return self._buffered

    def abort(self) -> None:
        """Stop in the middle, even while the server waits for the client. The server then breaks the connection.

        An answer whose head the server does not have yet is cut off behind it: without a head the server answers 500.
        """
        self.aborted = True
        self._filled.set()
        if self._sending is not None and self._begun:
            self._sending.cancel()

    def start_sending(self, send: Send) -> None:
        """Send queued messages until the last one or an abort.

        Call it before the next ``receive``: a server that is asked for more of a refused body sends 100 Continue.
        """
        self._sending = asyncio.ensure_future(self._send_all(send))

    async def send_unsent(self, send: Send) -> None:
        """Send what is queued, if the server has nothing of the answer yet: without a head it answers 500."""
        while not self._begun and self._messages:
            await send(self._messages.popleft())

    async def sent(self) -> None:
        """Wait until the last message is sent."""
        sending = self._sending
        assert sending is not None
        try:
            await asyncio.wait({sending})
            if not sending.cancelled():
                sending.result()
        finally:
            sending.cancel()
            self._sending = None
            del sending  # a failure refers to this frame, and its task to the failure

    async def _send_all(self, send: Send) -> None:
        more = True
        while more:
            await self._filled.wait()
            self._filled.clear()
            while self._messages:
                message = self._messages.popleft()
                await send(message)
                self._begun = True
                more = message.get("more_body", True)
                self._sent(len(message.get("body", b"")))
            if self.aborted:
                return

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
    """An ASGI application for requests whose exchanges ``opens`` makes: by default, those for inference endpoints."""

    def __init__(self, admission: Admission, opens: Opens | None = None) -> None:
        self._admission = admission
        self._opens = opens or admission.relay.open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        out = Outbound(address_of(scope))
        out.exchange = exchange = self._opens(out, scope["path"], headers)
        try:
            await self._relay(exchange, out, headers, receive, send)
        except asyncio.CancelledError:  # the server stops, and waits no longer for the client
            _log.debug("The client of %s was not done before the server stopped", scope["path"])
            exchange.cancel(shutting_down())
            await out.send_unsent(send)
        finally:
            exchange.client_disconnected()
            out.exchange = None  # otherwise the cycle of the two, with the body, waits for the garbage collector

    def _admit(self, headers: Headers) -> Caller | None:
        return self._admission.admit(headers)

    async def _relay(
        self, exchange: OpenExchange, out: Outbound, headers: Headers, receive: Receive, send: Send
    ) -> None:
        """Receive and send at once: a request may be cancelled, and so answered, before its body is complete."""
        try:
            arriving = self._read(exchange, self._admit(headers), receive)
        except RequestError as error:
            exchange.cancel(error)
            arriving = disconnected(receive)
        out.start_sending(send)
        receiving = asyncio.ensure_future(arriving)
        receiving.add_done_callback(lambda _: out.abort())
        try:
            await out.sent()
        finally:
            receiving.cancel()

    async def _read(self, exchange: OpenExchange, caller: Caller | None, receive: Receive) -> None:
        """Read the body and begin the exchange, then wait until the client disconnects or has its answer."""
        share = BodyShare(self._admission.body_memory)
        try:
            body = await self._body(receive, share)
            if body is None:
                return
            exchange.begin(body, caller)
            await disconnected(receive)
        except RequestError as error:
            share.give_back()
            exchange.cancel(error)
            await disconnected(receive)
        finally:
            share.give_back()

    async def _body(self, receive: Receive, share: BodyShare) -> bytes | None:
        """Read the body; ``None`` if the client disconnects. Raises ``BodyTooLarge`` or ``Overloaded``."""
        pieces: list[bytes] = []
        while True:
            if (received := await receive_piece(receive)) is None:
                return None
            piece, more = received
            if share.size + len(piece) > self._admission.max_body:
                raise self._admission.too_large()
            share.take(len(piece))
            pieces.append(piece)
            if not more:
                return b"".join(pieces)


def headers_of(scope: Scope) -> Headers:
    """The headers of an HTTP request or a WebSocket handshake, with lower-case names."""
    return [(name.lower(), value) for name, value in scope["headers"]]


def address_of(scope: Scope) -> str:
    """The address of the client; empty if it has none, as on a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


def without_date(headers: Headers) -> Headers:
    """``headers`` without the engine's ``Date``: an ASGI server adds its own."""
    return [header for header in headers if header[0] != b"date"]


async def receive_piece(receive: Receive) -> tuple[bytes, bool] | None:
    """The next piece of a body, and whether more will come; ``None`` if the client has disconnected."""
    message = await receive()
    if message["type"] == "http.disconnect":
        return None
    return message.get("body", b""), message.get("more_body", False)


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
