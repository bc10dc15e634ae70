"""Runs one worker: uvicorn on the listening sockets that the owner has opened."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, cast

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.config.schema import Config
from enginehouse.config.secret_variables import secret_values
from enginehouse.plugin_manager.registry import Registry
from enginehouse.processes.accepting import AcceptingServer
from enginehouse.processes.listen import Listeners
from enginehouse.processes.take_over.successor import SuccessorGateway
from enginehouse.processes.workers.shared_memory import WorkerMemory
from enginehouse.processes.workers.worker import SentLog, Worker, WorkerChannel
from enginehouse.telemetry.logs import GatewayLog, configure_logs

_log = logging.getLogger(__name__)

_BACKLOG: Final = 2048
_MORE: Final = 4
_SHARE: Final = 1.25
"""A worker that has this many times the connections of another, and some more, leaves new ones to the others."""
_PAUSE_S: Final = 0.001
_NO_ROOM_S: Final = 1.0
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class FairListener:
    """Accepts from ``open`` to ``close``. ``make`` returns the protocol of a connection.

    ``counts``: the connections of each worker, in memory that all share; the cell ``own`` is this one's. ``count``
    returns its number now.

    The kernel wakes every worker, and without a rule the first one takes all that come at once. What the others do not
    take in a moment, perhaps because their loops are held, this one takes all the same.
    """

    def __init__(
        self,
        listening: socket.socket,
        counts: memoryview,
        own: int,
        make: Callable[[], asyncio.BaseProtocol],
        count: Callable[[], int],
    ) -> None:
        self._listening = listening
        self._counts = counts
        self._own = own
        self._make = make
        self._count = count
        self._tasks = BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._listening.setblocking(False)
        self._listening.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._listening, self._readable)

    def close(self) -> None:
        """Accept nothing more. Connections that were accepted go on."""
        self._pause()
        self._listening.close()

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to do."""

    def _pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self._listening.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listening)

    def _pause_for(self, seconds: float) -> None:
        self._pause()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        asyncio.get_running_loop().add_reader(self._listening, self._readable)
        self._accept()

    def _readable(self) -> None:
        self._counts[self._own] = mine = self._count()
        if mine > _MORE + _SHARE * min(self._counts):
            self._pause_for(_PAUSE_S)
        else:
            self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError as error:  # mostly another worker was faster
            if error.errno in _NO_ROOM:
                _log.error("No connection can be accepted: %s", error.strerror)
                self._pause_for(_NO_ROOM_S)
            return
        self._counts[self._own] += 1
        self._tasks.start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
        except OSError:  # the client has left meanwhile
            connection.close()


async def serve_as_worker(
    number: int, owner: socket.socket, settings: Config, registry: Registry, listeners: Listeners, memory: WorkerMemory
) -> None:
    """Serve as the worker ``number`` until the ``owner`` wants it to end, or has ended."""
    channel = WorkerChannel()
    log = GatewayLog()
    log.ring = SentLog(channel.send)
    configure_logs(settings.telemetry, log, secret_values(settings))
    await channel.open(owner)
    with suppress(asyncio.CancelledError):  # the owner has ended
        worker = Worker(number, await channel.first, registry, channel, memory, log)
        config = worker.path.config  # reloads may have changed it since the settings that this process was forked with
        configure_logs(config.telemetry, log, secret_values(config))
        server = WorkerServer(worker, channel, listeners, memory.board.connections)
        channel.take_held()
        await server.serve([])
        channel.close()
        await asyncio.sleep(0)  # a transport closes in the turn after it was told to


class WorkerServer(AcceptingServer):
    """The server of a worker. Only the owner stops it. ``connections``: of each worker, shared."""

    def __init__(self, worker: Worker, channel: WorkerChannel, listeners: Listeners, connections: memoryview) -> None:
        super().__init__(worker.pages, worker.path, listeners)
        self._tasks = BackgroundTasks()
        self._worker = worker
        self._connections = connections
        channel.attach(self)
        channel.when_lost.append(partial(self.leave, False))

    async def accept(self) -> None:
        for each in self.listeners.copies():
            listener = FairListener(each, self._connections, self._worker.number, self._connection, self._count)
            listener.open()
            self.servers.append(cast("asyncio.Server", listener))  # uvicorn only closes it

    def _count(self) -> int:
        return len(self.server_state.connections)

    def leave(self, at_once: bool) -> None:
        """Accept nothing new, and stop when the live requests have ended, or ``at_once``."""
        self.should_exit = True
        self.woken.set()
        if at_once:
            self._end_live()

    def accept_if(self, wanted: bool) -> None:
        """Accept connections if they are ``wanted``; else let them wait in the kernel."""
        if not wanted:
            self.stop_accepting()
        elif not self.servers:
            self._tasks.start(self.accept())

    def pass_on_to(self, folder: str) -> None:
        """Give connections to the gateway that has taken over in the state folder ``folder``."""
        self.successor = SuccessorGateway(Path(folder))
        self.pass_on(self.successor.take)

    def _end_live(self) -> None:
        """End the live requests; a gateway that has taken over continues the streams that it can."""
        if self.successor is not None:
            self.pass_streams_on(self.successor.take)
        self._worker.relay.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._worker.start()
        await super().startup([])
        await self.accept()
        self._worker.tell_ready()

    async def on_tick(self, counter: int) -> bool:
        self._connections[self._worker.number] = self._count()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        relay, limit = self._worker.relay, self._worker.path.config.server.drain_timeout
        ending = asyncio.get_running_loop().call_later(limit, self._end_live)
        if self.successor is None:
            relay.refuse_new()
            await relay.web_sockets_ended()
            await self.close_listeners()
        else:
            self.listeners.close()
            await asyncio.wait([asyncio.ensure_future(relay.web_sockets_ended())], timeout=limit)
        try:
            await self.end(limit, self._worker.stop)
        finally:
            ending.cancel()
