"""The engine's side of a WebSocket: opened, and connected with the client's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.http11 import Response
from websockets.typing import Subprotocol

from enginehouse import Headers
from enginehouse.errors import LoadFailed, Overloaded, ShuttingDown, UpstreamError
from enginehouse.middleware import EngineMemory, EngineShare
from enginehouse.web_sockets import FOR_THE_GATEWAY, AskedEngine, WebSocketCarrier, WebSocketToEngine
from enginehouse_web_sockets.client_socket import ClientWebSocket, Farewell

_log = logging.getLogger("websockets.client")

_PING_EVERY_S = 20.0
_FAREWELL_S = 5.0
_LONGEST_REASON = 123
_NORMAL, _GOING_AWAY, _NO_CODE, _BROKEN, _POLICY, _BAD_GATEWAY = 1000, 1001, 1005, 1006, 1008, 1014


class RelayedSocket(WebSocketCarrier):
    """Opens the engine's side of ``client``, which is open only then, and passes messages until one side ends.

    ``largest``: the size limit in bytes of a message from the engine.
    """

    def __init__(self, client: ClientWebSocket, request: WebSocketToEngine, largest: int, memory: EngineMemory) -> None:
        self._client = client
        self._request = request
        self._largest = largest
        self._memory = memory
        self._answer: HandshakeAnswer | None = None

    async def open(self, engine: AskedEngine) -> int:
        self._answer = answer = await ask_for_web_socket(engine, self._client.subprotocols, self._largest)
        return answer.status

    async def left(self) -> None:
        await self._client.receive()

    async def carry(self, headers: Headers) -> None:
        answer = self._answer
        assert answer is not None
        headers = [*answer.headers, *headers]
        if answer.socket is None:
            await self._refuse(answer, headers)
            return
        await self._client.accept(answer.socket.subprotocol, headers)
        await WebSocketPipe(self._client, answer.socket, self._request).carry()

    async def _refuse(self, answer: HandshakeAnswer, headers: Headers) -> None:
        """Pass on what the engine answered instead of opening one."""
        share = EngineShare(self._memory, "answer", len(answer.body))
        if why := share.take(len(answer.body)):
            raise Overloaded(f"The engine refused the WebSocket, and its answer was dropped: {why}")
        try:
            await self._client.refuse(answer.status, headers, answer.body)
        finally:
            share.give_back()

    def abort(self) -> None:
        if self._answer is not None and self._answer.socket is not None:
            self._answer.socket.transport.abort()


class HandshakeAnswer(NamedTuple):
    """An engine's answer to a handshake. ``socket`` is the open WebSocket, unless the engine answered otherwise."""

    status: int
    headers: Headers
    body: bytes
    socket: ClientConnection | None


async def ask_for_web_socket(engine: AskedEngine, subprotocols: Sequence[str], largest: int) -> HandshakeAnswer:
    """Ask ``engine`` for a WebSocket. ``largest``: the size limit of a message in bytes.

    Raises ``UpstreamError``, or ``Overloaded`` if the gateway has no file descriptor left.
    """
    headers = [
        (name.decode("ascii"), value.decode("ascii"))
        for name, value in engine.headers
        if not name.startswith(b"sec-websocket-")  # those of the protocol itself
        and value.isascii()  # some releases of websockets would send others as UTF-8
    ]
    try:
        socket = await _Connect(
            engine.url,
            additional_headers=headers,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            compression=None,
            user_agent_header=None,
            proxy=None,
            open_timeout=None,  # the gateway has one
            ping_interval=_PING_EVERY_S,
            ping_timeout=None,  # an engine that computes may have no time for pings
            close_timeout=_FAREWELL_S,
            max_size=largest,
            max_queue=1,  # frame: each may be that large
            ssl=engine.tls,
            create_connection=_EngineSocket,
        )
    except InvalidStatus as refusal:
        return _answer(refusal.response, None)
    except OSError as error:
        raise engine.unreachable(error) from error
    except (WebSocketException, EOFError, LookupError, ValueError) as error:
        raise UpstreamError(f"Backend '{engine.backend}' opened no WebSocket: {error}") from error
    assert socket.response is not None
    return _answer(socket.response, socket)


def _answer(response: Response, socket: ClientConnection | None) -> HandshakeAnswer:
    """``response`` without the headers that concern only the gateway."""
    pairs = ((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items())
    headers = [
        (name, value) for name, value in pairs if name not in FOR_THE_GATEWAY and not name.startswith(b"sec-websocket-")
    ]
    return HandshakeAnswer(response.status_code, headers, bytes(response.body or b""), socket)


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow no redirect: the client gets it."""
        return exc


class _EngineSocket(ClientConnection):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.logger = self.protocol.logger = _log  # the adapter of websockets before 17 makes a cycle with the socket

    async def keepalive(self) -> None:
        """Send a ping now and then, without an error in the log if the engine leaves. It may have left already."""
        with contextlib.suppress(ConnectionClosed):
            while not self.transport.is_closing():
                await asyncio.sleep(_PING_EVERY_S)
                await self.ping()


class WebSocketPipe:
    """Carries messages between a client and an engine until one side ends, then ends the other with the same code.

    It reads the next message of one side when the other side has taken the last. ``request``: limits the time that the
    engine has to take one, and may be stopped.
    """

    def __init__(self, client: ClientWebSocket, engine: ClientConnection, request: WebSocketToEngine) -> None:
        self._client = client
        self._engine = engine
        self._request = request

    async def carry(self) -> None:
        """Carry messages until a side ends, or the request is stopped."""
        stop = self._request.stopped
        up, down = asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())
        ends: set[asyncio.Future[Any]] = {up, down, stop}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
        if stop.done():
            error = stop.result()
            await self._close_client(
                _GOING_AWAY if isinstance(error, (LoadFailed, ShuttingDown)) else _POLICY, error.message
            )
            await self._close_engine(_GOING_AWAY)
        elif up.cancelled():
            await self._close_client(*_as_sent(down.result(), _BAD_GATEWAY))
        else:
            await self._close_engine(*_as_sent(up.result(), _GOING_AWAY))

    async def _up(self) -> Farewell:
        """Carry the client's messages to the engine."""
        while not isinstance(message := await self._client.receive(), Farewell):
            self._request.await_engine(waits=True)
            with contextlib.suppress(
                ConnectionClosed
            ):  # _down ends then, after it has passed on the engine's last messages
                await self._engine.send(message)
            self._request.await_engine(waits=False)
        return message

    async def _down(self) -> Farewell:
        """Carry the engine's messages to the client."""
        try:
            while True:
                await self._client.send(await self._engine.recv())
        except ConnectionClosed as closed:
            return Farewell(closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else Farewell(_BROKEN, str(closed))

    async def _close_engine(self, code: int, reason: str = "") -> None:
        """Its answer stands behind the messages that it has sent meanwhile: they are read, and dropped."""
        await asyncio.gather(self._engine.close(code, reason), self._drop_messages())

    async def _drop_messages(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._engine.recv()

    async def _close_client(self, code: int, reason: str) -> None:
        short = reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
        with contextlib.suppress(asyncio.TimeoutError):  # the client reads nothing
            await asyncio.wait_for(self._client.close(Farewell(code, short)), _FAREWELL_S)


def _as_sent(farewell: Farewell, if_broken: int) -> Farewell:
    """One side's farewell for the other: 1005 and 1006 must not be sent (RFC 6455, 7.4.1)."""
    code = {_NO_CODE: _NORMAL, _BROKEN: if_broken}.get(farewell.code, farewell.code)
    return Farewell(code, farewell.reason)
