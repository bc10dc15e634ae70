"""A server that may stop to accept, and whose connections may pass to another gateway."""

from __future__ import annotations

import asyncio
import gc
import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from enginehouse.aio.timeouts import wait_within
from enginehouse.app.request_path import RequestPath
from enginehouse.http.client_connection import ClientConnection, PassOn
from enginehouse.http.cross_origin import Cors
from enginehouse.http.server import HttpServer
from enginehouse.processes.listen import Listeners
from enginehouse.processes.take_over.messages import PassedConnection
from enginehouse.processes.take_over.successor import SuccessorGateway

_READ_S = 0.05
"""Within so long, clients that have just connected send their requests."""
_TURNS = 10


class AcceptingServer(uvicorn.Server):
    """uvicorn with connections of our own. It accepts on copies of the sockets of ``listeners``, so it can go on later.

    ``application`` answers the requests that engines do not.
    ``successor``: the gateway that has taken over and gets the connections, if one has. ``woken`` ends the wait of
    ``main_loop`` for the next second.
    """

    def __init__(self, application: ASGIApp, path: RequestPath, listeners: Listeners) -> None:
        self.listeners = listeners
        self.successor: SuccessorGateway | None = None
        self.woken = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                cast("Any", application),
                http=cast("type[asyncio.Protocol]", self._connection),  # uvicorn only calls it
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="off",
            )
        )
        state = self.server_state
        self._http = HttpServer(
            application, path.admission, path.paths, Cors(path.config.server.cors), state.connections, state.tasks
        )

    async def main_loop(self) -> None:
        """Look for a signal each second. uvicorn would do so ten times as often.

        Garbage is collected as suits a process that serves for months.
        """
        gc.freeze()  # also the few reference cycles of the start: to collect them would take a tenth of it
        gc.set_threshold(50_000, 20, 50)  # requests leave no cycles
        while not await self.on_tick(0):
            await wait_within(1.0, self.woken)
            self.woken.clear()

    async def end(self, limit: float, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop when the live requests have ended, which the relay sees to within ``limit`` seconds, and then ``stop``.

        uvicorn cancels what the application still does, without an answer. So it waits a little longer than the relay.
        """
        self.config.timeout_graceful_shutdown = math.ceil(limit) + 1
        await super().shutdown([])
        try:
            if not self.force_exit:
                await stop()
        finally:
            if self.successor is not None:
                await self.successor.close()

    async def accept(self) -> None:
        if self.servers:
            return
        loop = asyncio.get_running_loop()
        for each in self.listeners.copies():
            self.servers.append(await loop.create_server(self._connection, sock=each, backlog=self.config.backlog))

    def stop_accepting(self) -> None:
        """Accept no connections until ``accept``. They wait in the kernel."""
        for each in self.servers:
            each.close()
        self.servers.clear()

    async def close_listeners(self) -> None:
        """Accept no more, for good, after the connections that the kernel has accepted: to close it would reset them.

        Returns when their requests have been read, and those on other connections that have arrived.
        """
        self.stop_accepting()
        await asyncio.sleep(0)  # until the copies are closed
        loop = asyncio.get_running_loop()
        for each in self.listeners.sockets:
            each.setblocking(False)
            with suppress(OSError):  # there are no more, or no descriptors for them
                for _ in range(self.config.backlog):  # no more can have been waiting; clients may connect without end
                    connection, _ = each.accept()
                    await loop.connect_accepted_socket(self._connection, connection)
        self.listeners.close()
        await asyncio.sleep(_READ_S)
        for _ in range(_TURNS):  # a busy machine may not have let the loop read meanwhile
            await asyncio.sleep(0)

    def pass_on(self, take: PassOn) -> None:
        """Give the connections to another gateway, each when it has the answer that is under way."""
        for connection in self._clients():
            connection.leave(take)

    def pass_streams_on(self, take: PassOn) -> None:
        """Give the connections to another gateway that have a stream which it can continue."""
        for connection in self._clients():
            connection.pass_stream(take)

    def _clients(self) -> list[ClientConnection]:
        connections: set[Any] = self.server_state.connections
        return [each for each in connections if isinstance(each, ClientConnection)]

    async def serve_connection(self, connection: socket.socket, passed: PassedConnection, *, last: bool) -> None:
        """Serve a client of an earlier gateway. With ``last``, its next answer is the last one here, and says so."""

        def resumed() -> asyncio.Protocol:
            return cast("asyncio.Protocol", ClientConnection(self._http, not last, passed.stream, passed.received))

        try:
            await asyncio.get_running_loop().connect_accepted_socket(resumed, connection)
        except OSError:  # the client has left meanwhile
            connection.close()

    def _connection(self, **_: object) -> asyncio.Protocol:
        return cast("asyncio.Protocol", ClientConnection(self._http))  # it has the methods, and is compiled
