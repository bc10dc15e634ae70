"""WebSockets: the plugin that speaks the protocol, and what the gateway does for it."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.engine_memory import EngineMemory

if TYPE_CHECKING:  # starlette
    from starlette.types import ASGIApp, Scope


class AskedEngine(NamedTuple):
    """An engine that is asked for a WebSocket.

    - ``url``: of the WebSocket. ``tls``: for ``wss``.
    - ``headers``: those of the client that an engine may see, the engine's key, and the id of the request.
    - ``unreachable``: the error to raise for one of the operating system.
    """

    backend: str
    url: str
    headers: Headers
    tls: ssl.SSLContext | None
    unreachable: Callable[[OSError], RequestError]


class WebSocketCarrier(Protocol):
    """A client that asks for a WebSocket, and the engine's side of it."""

    async def open(self, engine: AskedEngine) -> int:
        """Ask the engine, and return the status of its answer, which is kept for ``carry``.

        Cancelled at the time limit. Raises ``UpstreamError`` if there is no answer: another engine may be asked then.
        """

    async def left(self) -> None:
        """Wait until the client leaves. Cancelled as soon as an engine has answered."""

    async def carry(self, headers: Headers) -> None:
        """Give the client the engine's answer, with these ``headers`` too, and carry messages until one side ends.

        Or until the request is ``stopped``: then end both sides.
        """

    def abort(self) -> None:
        """Break the engine's side, if it is open. Called at the end, whatever happened."""


class WebSocketToEngine(Protocol):
    """A client's request for a WebSocket to an engine.

    It is load of its backend, and takes a slot of its queue, from ``serve`` on.

    - ``request_id``: the value of ``x-request-id``.
    - ``stopped``: gets the error with which the request must end, of an operator or a time limit.
    """

    @property
    def request_id(self) -> bytes: ...

    stopped: asyncio.Future[RequestError]

    async def serve(self, headers: Headers, carrier: WebSocketCarrier) -> None:
        """Admit the client, whose credential is in ``headers``, find an engine, and carry messages until the end.

        Raises ``RequestError`` if the client still waits for an answer to its handshake.
        """

    def await_engine(self, *, waits: bool) -> None:
        """Limit the time in which the engine takes a message, from now on; or no more, if it ``waits`` no longer."""


class MessageShare(Protocol):
    """The share of a client's messages in the memory for bodies (``server.max_body_memory``)."""

    def hold(self, size: int) -> None:
        """Count ``size`` bytes in place of those so far. Raises ``Overloaded`` if there is no room for more."""


class Handshake(NamedTuple):
    """A client's request for a WebSocket, which has left HTTP. The server that gets it owns the connection.

    - ``url``, ``headers``: as they came. ``behind``: what came after them.
    - ``largest``: the size limit of a message in bytes.
    - ``connections``: those that are open. A server that stops calls ``shutdown`` of each in it, and waits for
      ``tasks``.
    - ``share``: counts what is held of the client's messages. ``memory``: what is held of engines' answers.
    - ``engine``: begins the request to an engine. ``None`` if the ``application`` answers, which gets ``scope``.
    """

    transport: asyncio.Transport
    url: bytes
    headers: Headers
    behind: bytes
    largest: int
    connections: set[Any]
    tasks: set[asyncio.Task[None]]
    share: MessageShare
    memory: EngineMemory
    engine: Callable[[], WebSocketToEngine] | None
    application: ASGIApp
    scope: Scope


class WebSocketServer(ABC):
    """Serves the clients that ask for a WebSocket. A gateway has one at most; without it, it refuses them."""

    @abstractmethod
    def open(self, handshake: Handshake) -> None:
        """Take over the connection: check and answer the handshake, and carry messages in a task."""
