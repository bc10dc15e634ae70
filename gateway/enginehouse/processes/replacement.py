"""Replaces a running gateway by a new process: lets it take over, and starts it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app import Gateway
from enginehouse.interfaces.accounting import TakenLimit
from enginehouse.processes.accepting import AcceptingServer
from enginehouse.processes.take_over.messages import PassedConnection
from enginehouse.processes.take_over.new_side import TakeOverFailed
from enginehouse.processes.take_over.running_side import ReplaceableGateway, TakeOverServer

_log = logging.getLogger(__name__)

TAKE_OVER = "--take-over"
_LOOK_EVERY_S = 0.05
_TAKE_OVER_S = 120.0
"""More than a new gateway needs to start, and all that this one waits for in between."""


class Replacement(ReplaceableGateway):
    """Lets other processes take over from ``gateway``, which ``server`` serves, and starts one.

    ``variables``: its additional environment. ``on_left`` is called with the pid of the one that has taken over.
    ``workers``: whether these accept connections, so that ``server`` gives only one answer to each that it adopts.
    """

    def __init__(
        self,
        gateway: Gateway,
        server: AcceptingServer,
        variables: Mapping[str, str],
        on_left: Callable[[int], None],
        *,
        workers: bool,
    ) -> None:
        self._gateway = gateway
        self._server = server
        self._variables = variables
        self._on_left = on_left
        self._workers = workers
        self._tasks = BackgroundTasks()
        self._left = asyncio.Event()
        self._writer: TakeOverServer | None = None

    def open(self) -> None:
        """Let others take over, unless this gateway has no state folder to pass on."""
        if (folder := self._gateway.state_folder) is not None:
            self._writer = TakeOverServer(folder, self)
            self._writer.open()

    def close(self) -> None:
        """Let nobody take over any more."""
        if self._writer is not None:
            self._writer.close()

    def start(self, why: str) -> None:
        """Begin to replace this process. The result is logged."""
        self._tasks.start(self._replace_for(why))

    async def replace(self) -> int:
        """Start this program again to take over, and return its process id when it has. Raises ``TakeOverFailed``."""
        if os.getpid() == 1:
            problem = "this gateway is process 1 of its container, which ends with it: start another container"
            raise TakeOverFailed(problem)
        if self._writer is None:
            raise TakeOverFailed("another gateway of the same server.name uses the state folder")
        words = sys.orig_argv if TAKE_OVER in sys.orig_argv else [*sys.orig_argv, TAKE_OVER]
        # a process of asyncio would be killed when this one ends
        process = subprocess.Popen(words, env={**os.environ, **self._variables}, stdin=subprocess.DEVNULL)  # noqa: ASYNC220
        loop = asyncio.get_running_loop()
        end = loop.time() + _TAKE_OVER_S
        while process.poll() is None and not self._left.is_set():
            await asyncio.sleep(_LOOK_EVERY_S)
            if loop.time() > end and not self._left.is_set():
                process.kill()
                problem = f"the new gateway, process {process.pid}, has not taken over within {_TAKE_OVER_S:g} s"
                raise TakeOverFailed(f"{problem} and was killed; this one keeps serving")
        if not self._left.is_set():
            problem = f"the new gateway ended with status {process.returncode}, as its output explains"
            raise TakeOverFailed(f"{problem}; this one goes on")
        return process.pid

    async def _replace_for(self, why: str) -> None:
        _log.info("Starting a new gateway to take over: %s", why)
        try:
            await self.replace()
        except TakeOverFailed as error:
            _log.error("No other gateway has taken over: %s", error)

    # --- from the other process

    def listening(self) -> Sequence[int]:
        return [each.fileno() for each in self._server.listeners.sockets]

    async def pause(self) -> int:
        lock = await self._gateway.pause()
        self._server.stop_accepting()
        return lock

    def resume(self) -> None:
        self._gateway.resume()
        self._tasks.start(self._server.accept())

    def taken(self) -> Mapping[str, TakenLimit]:
        return self._gateway.callers.accounting.taken()

    def drains_within(self) -> float:
        return self._gateway.config.server.drain_timeout

    def leave(self, pid: int) -> None:
        self._left.set()
        self._on_left(pid)

    def adopt(self, connection: socket.socket, passed: PassedConnection) -> None:
        self._tasks.start(self._server.serve_connection(connection, passed, last=self._workers))
