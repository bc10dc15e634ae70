"""A server that may stop to accept, and whose connections may pass to another gateway."""

from __future__ import annotations

import asyncio
import gc
import math
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from enginehouse.aio.timeouts import wait_within
from enginehouse.api.doors.admission import Admission
from enginehouse.api.doors.fast import FastDoor, PassOn, Resumed, fast_door, web_socket_protocol
from enginehouse.cli.allocator import Allocator
from enginehouse.cli.listen import Listeners
from enginehouse.config.server import ServerSettings
from enginehouse.processes.take_over.connections import SuccessorGateway
from enginehouse.processes.take_over.messages import PassedConnection

_PONG_TIMEOUT_S = 120.0
"""Not shorter than an engine may stall: a client's pong waits behind messages that the engine has not yet taken."""


class AcceptingServer(uvicorn.Server):
    """uvicorn with the fast door. It accepts on copies of the sockets of ``listeners``, so it can stop and go on.

    ``successor``: the gateway that has taken over and gets the connections, if one has. ``woken`` ends the wait of
    ``main_loop`` for the next second.
    """

    def __init__(
        self,
        application: ASGIApp,
        admission: Admission,
        settings: ServerSettings,
        listeners: Listeners,
    ) -> None:
        self.listeners = listeners
        self.successor: SuccessorGateway | None = None
        self.woken = asyncio.Event()
        self._allocator = Allocator()
        door = fast_door(admission, cors=bool(settings.cors))
        super().__init__(
            uvicorn.Config(
                cast("Any", application),
                http=cast("type[asyncio.Protocol]", door),  # uvicorn only calls it
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                ws=cast("type[asyncio.Protocol]", web_socket_protocol),
                ws_max_size=settings.max_body,
                ws_ping_timeout=_PONG_TIMEOUT_S,
                lifespan="off",
            )
        )

    def tune_memory(self) -> None:
        """Have memory managed for a process that serves for months, when the start is done."""
        gc.freeze()  # also the few reference cycles of the start: to collect them would take a tenth of it
        gc.set_threshold(50_000, 20, 50)  # requests leave no cycles
        self._allocator.start()

    async def main_loop(self) -> None:
        """Renew the ``Date`` header each second. uvicorn would look for a signal ten times as often."""
        while not await self.on_tick(0):  # each tick of this number renews it
            await wait_within(1.0, self.woken)
            self._allocator.tick()
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
        loop = asyncio.get_running_loop()
        for each in self.listeners.copies():
            self.servers.append(await loop.create_server(self._protocol, sock=each, backlog=self.config.backlog))

    def stop_accepting(self) -> None:
        """Accept no connections until ``accept``. They wait in the kernel."""
        for each in self.servers:
            each.close()
        self.servers.clear()

    def pass_on(self, take: PassOn) -> None:
        """Give the connections to another gateway, each when it has the answer that is under way."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, FastDoor):
                connection.leave(take)

    def pass_streams_on(self, take: PassOn) -> None:
        """Give the connections to another gateway that have a stream which it can continue."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, FastDoor):
                connection.pass_stream(take)

    async def serve_connection(self, connection: socket.socket, passed: PassedConnection, *, last: bool) -> None:
        """Serve a client of an earlier gateway. With ``last``, its next answer is the last one here, and says so."""

        def door() -> FastDoor:
            made = self._protocol()
            made.keeps = not last
            made.resumes = passed.stream
            return made

        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: Resumed(door, passed.received), connection)
        except OSError:  # the client has left meanwhile
            connection.close()

    def _protocol(self) -> FastDoor:
        """A new connection's protocol, as uvicorn makes it."""
        make: Any = self.config.http_protocol_class
        door: FastDoor = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return door
