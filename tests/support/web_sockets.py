"""Engines and clients that speak WebSocket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response

from tests.support.own_address import OWN_ADDRESS
from tests.support.served_gateway import ServedGateway
from tests.support.waiting import within

Handler = Callable[[ServerConnection], Awaitable[None]]


class SocketEngine:
    """An engine that speaks WebSocket. ``requests``: the handshakes that reached it."""

    def __init__(self) -> None:
        self.url = ""
        self.sockets: list[ServerConnection] = []
        self.requests: list[Request] = []

    def listens(self, server: Server) -> None:
        self.url = f"http://{OWN_ADDRESS}:{server.sockets[0].getsockname()[1]}"


class StartSocketEngine(Protocol):
    """Starts engines. ``handler`` serves each WebSocket; ``refusal`` answers the handshake instead.

    ``options`` are those of ``websockets.serve``.
    """

    async def __call__(
        self, handler: Handler | None = None, refusal: Response | None = None, **options: Any
    ) -> SocketEngine: ...


class Dial(Protocol):
    """Opens WebSockets of a gateway. ``options`` are those of ``websockets.connect``."""

    async def __call__(
        self, gateway: ServedGateway, path: str = "/upstream/m/", **options: Any
    ) -> ClientConnection: ...


@contextlib.asynccontextmanager
async def socket_engines() -> AsyncIterator[StartSocketEngine]:
    """Closes the engines that it starts at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            handler: Handler | None = None, refusal: Response | None = None, **options: Any
        ) -> SocketEngine:
            made = SocketEngine()

            async def handle(socket: ServerConnection) -> None:
                made.sockets.append(socket)
                await (handler or echo)(socket)

            def process_request(socket: ServerConnection, request: Request) -> Response | None:
                made.requests.append(request)
                return refusal

            options = {"process_request": process_request, "close_timeout": 1, **options}
            made.listens(await stack.enter_async_context(serve(handle, OWN_ADDRESS, 0, **options)))
            return made

        yield start


@contextlib.asynccontextmanager
async def dialled() -> AsyncIterator[Dial]:
    """Closes the WebSockets that it opens at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def dial(gateway: ServedGateway, path: str = "/upstream/m/", **options: Any) -> ClientConnection:
            url = f"ws://{OWN_ADDRESS}:{gateway.port}{path}"
            return await stack.enter_async_context(connect(url, proxy=None, close_timeout=1, **options))

        yield dial


async def echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


async def hold(socket: ServerConnection) -> None:
    """Take nothing until the WebSocket is closed."""
    await socket.wait_closed()


async def farewell(socket: Connection) -> tuple[int | None, str | None]:
    """The code and the reason that the WebSocket is closed with."""
    await within(socket.wait_closed())
    return socket.close_code, socket.close_reason


def accepted(socket: ClientConnection) -> Response:
    """The response to the handshake."""
    assert socket.response is not None
    return socket.response


async def refusal_of(gateway: ServedGateway, dial: Dial, path: str = "/upstream/m/", **options: Any) -> Response:
    """The response to a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refused:
        await dial(gateway, path, **options)
    return refused.value.response


def code_of(response: Response) -> str:
    """The code of an error."""
    return str(msgspec.json.decode(response.body or b"")["error"]["code"])
