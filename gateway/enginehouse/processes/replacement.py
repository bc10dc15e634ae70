"""Replaces a running gateway by a new process: lets it take over, and starts it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.app import Gateway
from enginehouse.processes.accepting import AcceptingServer
from enginehouse.processes.take_over.channel import ChannelClosed, MessageChannel, listen_in
from enginehouse.processes.take_over.messages import (
    FORMAT,
    VERSION,
    Built,
    EnginesLeft,
    EnginesTaken,
    Hello,
    PassedConnection,
    Retired,
    TakeOverOffer,
)
from enginehouse.processes.take_over.new_side import TakeOverFailed

_log = logging.getLogger(__name__)

TAKE_OVER = "--take-over"
_LOOK_EVERY_S = 0.05
_TAKE_OVER_S = 120.0
"""More than a new gateway needs to start, and all that this one waits for in between."""
_HELLO_S = 10.0
"""How long whoever connects may say nothing."""
_BUILD_S = 30.0
"""How long the new gateway may take to load its plugins and to probe backends. Then others may take over."""
_LEAVE_S = 30.0
"""How long engines that are being stopped may delay a take-over."""
_TAKE_S = 30.0
"""How long the new gateway may take to find the engines. Then this one goes on."""


class Replacement:
    """Lets other processes take over from ``gateway``, which ``server`` serves, and starts one.

    ``tell`` tells observers that it is about to. ``on_left`` is called with the pid of the one that has taken over.
    ``workers``: whether these accept connections, so that ``server`` gives only one answer to each that it adopts.
    """

    def __init__(
        self,
        gateway: Gateway,
        server: AcceptingServer,
        tell: Callable[[str, str], None],
        on_left: Callable[[int], None],
        *,
        workers: bool,
    ) -> None:
        self._gateway = gateway
        self._server = server
        self._tell = tell
        self._on_left = on_left
        self._workers = workers
        self._tasks = BackgroundTasks()
        self._left = asyncio.Event()
        self._listening = BackgroundTasks()
        self._busy = False

    def open(self) -> None:
        """Let others take over, unless this gateway has no state folder to pass on, or cannot listen there."""
        if (folder := self._gateway.state_folder) is None:
            return
        try:
            listener = listen_in(folder)
        except OSError as error:
            _log.warning("No other gateway can take over from this one: %s", error)
            return
        self._listening.start(self._accept(listener))

    def close(self) -> None:
        """Refuse further take-overs. Connections that an earlier gateway passes still come."""
        self._listening.cancel()

    def start(self, why: str) -> None:
        """Begin to replace this process. The result is logged."""
        self._tasks.start(self._replace_for(why))

    async def replace(self) -> int:
        """Start this program again to take over, and return its process id when it has. Raises ``TakeOverFailed``."""
        if os.getpid() == 1:
            problem = "this gateway is process 1 of its container, which ends with it: start another container"
            raise TakeOverFailed(problem)
        if self._gateway.state_folder is None:
            raise TakeOverFailed("another gateway of the same server.name uses the state folder")
        words = sys.orig_argv if TAKE_OVER in sys.orig_argv else [*sys.orig_argv, TAKE_OVER]
        # a process of asyncio would be killed when this one ends
        self._tell("replacing", "")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL)  # noqa: ASYNC220
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

    async def _accept(self, listener: socket.socket) -> None:
        with closing(listener):
            while True:
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                channel = MessageChannel(connection)
                self._tasks.start(self._converse(channel))

    async def _converse(self, channel: MessageChannel) -> None:
        with closing(channel):
            try:
                hello, _ = await run_within(_HELLO_S, channel.receive(Hello))
                if hello.format == FORMAT and hello.wants == "connections":
                    await self._adopt_all(channel)
                else:
                    await self._offer(channel, hello)
            except (ChannelClosed, TimeoutError) as error:
                _log.info("A gateway that wanted to take over has given up: %s", str(error) or "it gave no reason")

    async def _adopt_all(self, channel: MessageChannel) -> None:
        """Serve the connections that an earlier gateway passes, until it ends the conversation."""
        with suppress(ChannelClosed):
            while True:
                passed, descriptors = await channel.receive(PassedConnection)
                for each in descriptors:
                    client = socket.socket(fileno=each)
                    self._tasks.start(self._server.serve_connection(client, passed, last=self._workers))

    async def _offer(self, channel: MessageChannel, hello: Hello) -> None:
        if refused := self._why_not(hello):
            _log.warning("Process %d may not take over: %s", hello.pid, refused)
            await channel.send(TakeOverOffer(version=VERSION, pid=os.getpid(), refused=refused))
            return
        self._busy = True
        try:
            _log.info("Process %d (version %s) is about to take over", hello.pid, hello.version)
            listening = [each.fileno() for each in self._server.listeners.sockets]
            await channel.send(TakeOverOffer(version=VERSION, pid=os.getpid()), listening)
            if await self._built(channel, hello.pid):
                await self._hand_over(channel, hello.pid)
        finally:
            self._busy = False

    async def _built(self, channel: MessageChannel, pid: int) -> bool:
        """Wait until the new gateway is built. Returns false, and tells it so, if that takes too long."""
        try:
            await run_within(_BUILD_S, channel.receive(Built))
        except TimeoutError:
            _log.error("Process %d was not ready to take over within %g s, and is refused from now on", pid, _BUILD_S)
            await channel.send(EnginesLeft(refused=f"this gateway was not ready within {_BUILD_S:g} s; start it again"))
            return False
        return True

    def _why_not(self, hello: Hello) -> str:
        if hello.format != FORMAT:
            mine, other = f"{VERSION} in format {FORMAT}", f"{hello.version} in format {hello.format}"
            return f"it hands over as {mine}, the new one is {other}: stop the running one, then start the new one"
        return "another gateway is taking over already" if self._busy else ""

    async def _hand_over(self, channel: MessageChannel, pid: int) -> None:
        """Leave the engines to the new gateway. If it does not take them, go on as if nothing had happened."""
        try:
            lock = await run_within(_LEAVE_S, self._pause())
        except TimeoutError:
            await self._resume()
            refused = f"engines have been stopping for {_LEAVE_S:g} s; try again when they have stopped"
            await channel.send(EnginesLeft(refused=refused))
            return
        try:
            await channel.send(EnginesLeft(), [lock])
            await run_within(_TAKE_S, channel.receive(EnginesTaken))
            gateway = self._gateway
            taken, drains_within = gateway.callers.accounting.taken(), gateway.config.server.drain_timeout
            await channel.send(Retired(limits=taken, ends_within=drains_within))
        except (ChannelClosed, TimeoutError) as error:
            _log.error(
                "Process %d has not taken over, and this gateway keeps serving: %s", pid, str(error) or "too late"
            )
            await self._resume()
            self.close()
            self.open()  # the other one may have taken the place in the folder
        else:
            _log.info("Process %d has taken over. This gateway drains and ends", pid)
            self._left.set()
            self._on_left(pid)
            await asyncio.Event().wait()  # the end of this process ends the conversation

    async def _pause(self) -> int:
        """Accept no connections and touch no engine. Returns the descriptor of the lock."""
        lock = await self._gateway.pause()
        self._server.stop_accepting()
        return lock

    async def _resume(self) -> None:
        """Go on as before ``_pause``."""
        self._tasks.start(self._server.accept())
        await self._gateway.resume()
