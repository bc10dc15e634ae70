"""WebSockets to an engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.http11 import Response
from websockets.typing import Subprotocol

from enginehouse.domain.errors import Overloaded, UpstreamError, UpstreamTimeout
from enginehouse.domain.request import Headers
from enginehouse.relay.heads.headers import FOR_THE_GATEWAY
from enginehouse.relay.upstream.upstream import Upstream

_log = logging.getLogger("websockets.client")

_PING_EVERY_S = 20.0
_FAREWELL_S = 5.0


class HandshakeAnswer(NamedTuple):
    """An engine's answer to a handshake. ``socket`` is the open WebSocket, unless the engine answered otherwise."""

    status: int
    headers: Headers
    body: bytes
    socket: ClientConnection | None


async def open_web_socket(
    upstream: Upstream, target: str, headers: Headers, request_id: bytes, *, subprotocols: Sequence[str], largest: int
) -> HandshakeAnswer:
    """Ask the engine for a WebSocket to ``target``.

    ``target`` is a path and perhaps a query, as they stand on the wire; ``largest`` is in bytes, of one message. Raises
    ``UpstreamError``, ``UpstreamTimeout``, or ``Overloaded`` if the gateway has no file descriptor left.
    """
    origin, timeouts = upstream.pool.origin, upstream.timeouts
    if not origin.host:
        raise UpstreamError(f"Backend '{upstream.name}' could not be reached: its engine does not run")
    try:
        socket = await _Connect(
            f"{'wss' if origin.tls else 'ws'}://{origin.authority}{origin.prefix}{target}",
            additional_headers=upstream.handshake(headers, request_id),
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            compression=None,
            user_agent_header=None,
            proxy=None,
            open_timeout=timeouts.connect + timeouts.first_byte if timeouts.connect and timeouts.first_byte else None,
            ping_interval=_PING_EVERY_S,
            ping_timeout=None,  # an engine that computes may have no time for pings
            close_timeout=_FAREWELL_S,
            max_size=largest,
            ssl=upstream.pool.tls,
            create_connection=_EngineSocket,
        )
    except InvalidStatus as refusal:
        return _answer(refusal.response, None)
    except (asyncio.TimeoutError, OSError, WebSocketException, EOFError, LookupError, ValueError) as error:
        raise _failure(upstream, error) from error
    assert socket.response is not None
    return _answer(socket.response, socket)


def _answer(response: Response, socket: ClientConnection | None) -> HandshakeAnswer:
    """``response`` without the headers that concern only the gateway."""
    pairs = ((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items())
    headers = [
        (name, value) for name, value in pairs if name not in FOR_THE_GATEWAY and not name.startswith(b"sec-websocket-")
    ]
    return HandshakeAnswer(response.status_code, headers, bytes(response.body or b""), socket)


def _failure(upstream: Upstream, error: Exception) -> UpstreamError | UpstreamTimeout | Overloaded:
    backend = upstream.name
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return UpstreamTimeout(f"Backend '{backend}' did not open a WebSocket in time")
    if not isinstance(error, OSError):
        return UpstreamError(f"Backend '{backend}' opened no WebSocket: {error}")
    unreachable = UpstreamError(f"Backend '{backend}' could not be reached: {error}")
    return upstream.outside.shortage(error) or unreachable


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
        with suppress(ConnectionClosed):
            while not self.transport.is_closing():
                await asyncio.sleep(_PING_EVERY_S)
                await self.ping()
