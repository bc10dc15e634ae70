"""The conformance check of what serves WebSockets: handshakes for a page, for an engine, and a wrong one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from enginehouse import Headers, RequestError, WebSocketServer
from enginehouse.errors import Forbidden
from enginehouse.middleware import EngineMemory
from enginehouse.web_sockets import Handshake, MessageShare, WebSocketCarrier, WebSocketToEngine
from enginehouse_kit.expect import expect

_HEADERS: Headers = [
    (b"host", b"localhost"),
    (b"upgrade", b"websocket"),
    (b"connection", b"upgrade"),
    (b"sec-websocket-key", b"aQ8QZPsHulp+dhFE+mwEFA=="),
    (b"sec-websocket-version", b"13"),
]
_STEPS = 50
"""Iterations of the loop after which a handshake is answered."""


class _Connection(asyncio.Transport):
    """Notes what is written. The protocol that is set has it from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = False
        self.protocol: Any = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.ended = True

    abort = close

    def is_closing(self) -> bool:
        return self.ended

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


class _Share(MessageShare):
    def hold(self, size: int) -> None:
        return


class _Refused(WebSocketToEngine):
    """A request whose client may not use the model."""

    request_id = b"r1"

    def __init__(self) -> None:
        self.stopped: asyncio.Future[RequestError] = asyncio.get_running_loop().create_future()

    async def serve(self, headers: Headers, carrier: WebSocketCarrier) -> None:
        raise Forbidden("This key may not use the model")

    def await_engine(self, *, waits: bool) -> None:
        return


def check_web_socket_server(factory: Callable[[], WebSocketServer]) -> None:
    """Check that each handshake is answered, and that the connection closes unless it has become a WebSocket.

    Raises ``AssertionError``.
    """
    asyncio.run(_check(factory()))


async def _check(it: WebSocketServer) -> None:
    for what, headers, engine in (
        ("a page", _HEADERS, None),
        ("a client that may not use the model", _HEADERS, _Refused),
        ("a wrong handshake", _HEADERS[:-1], None),
    ):
        connection, tasks = _Connection(), set[asyncio.Task[None]]()
        shared = set[Any](), tasks, _Share(), EngineMemory()
        it.open(Handshake(connection, b"/ws", headers, b"", 1 << 20, *shared, engine, _accepts, {"path": "/ws"}))
        for _ in range(_STEPS):
            await asyncio.sleep(0)
        answer = connection.written
        expect(answer.startswith(b"HTTP/1.1 "), f"{what} must get an HTTP response, got {answer!r}")
        is_open = b" 101 " in answer
        expect(not is_open or what == "a page", f"{what} must get no WebSocket")
        expect(is_open or connection.ended, "a connection that has not become a WebSocket must close")
        for task in tasks:
            task.cancel()
        if connection.protocol is not None:
            connection.protocol.connection_lost(None)


async def _accepts(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await receive()
