"""The server of a gateway: begins and ends its work, and hands over to another process."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import click

from enginehouse.aio.timeouts import run_unless
from enginehouse.app import Gateway
from enginehouse.domain.errors import EnginehouseError
from enginehouse.engines.state_file import StateFile, state_folder
from enginehouse.processes.accepting import AcceptingServer
from enginehouse.processes.listen import Listeners
from enginehouse.processes.replacement import Replacement
from enginehouse.processes.take_over.new_side import Predecessor, TakeOverFailed
from enginehouse.processes.take_over.successor import SuccessorGateway
from enginehouse.telemetry.logs import json_line
from enginehouse.telemetry.observers import notify

if TYPE_CHECKING:
    from enginehouse.processes.workers.forks import Forks

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
_SETTLE_S = 10.0
"""How long silent backends and discoverers may delay a take-over, while nobody accepts connections."""


class GatewayServer(AcceptingServer):
    """The server of a whole gateway. It prints its address, and tells observers what it does.

    uvicorn itself gets no sockets: those of ``listeners`` may stop to accept, and pass to another process. With a
    ``predecessor``, they are its sockets. With ``forks``, workers accept, and this process only owns what they share.
    """

    def __init__(
        self,
        gateway: Gateway,
        listeners: Listeners,
        predecessor: Predecessor | None,
        forks: Forks | None,
        greeting: Callable[[str], str],
    ) -> None:
        super().__init__(gateway.application, gateway.path, listeners)
        self._workers = forks.pool(gateway) if forks is not None else None
        self._gateway = gateway
        gateway.current.address = listeners.address
        self._tell = partial(notify, gateway.observers.callbacks("serving"))
        self._predecessor = predecessor
        self._predecessor_gone: asyncio.Future[None] | None = None
        self._replacement = Replacement(gateway, self, self._tell, self._leave, workers=self._workers is not None)
        self._greeting = greeting
        self.problem: EnginehouseError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            if self._predecessor is None:
                self._gateway.build_hosts()
                self._gateway.every_second.sample()  # pages see what happens from the start on
                await self._gateway.start()
            else:
                await self._take_over(self._predecessor)
        except EnginehouseError as error:
            self.problem = error
            self.should_exit = True
            return
        await super().startup([])
        if self._workers is None:
            await super().accept()
        else:  # a signal must not wait for workers that do not come up
            self._workers.on_lost = self._workers_lost
            signalled = asyncio.ensure_future(self.woken.wait())
            await run_unless(signalled, self._workers.start())
            signalled.cancel()
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._loop.add_signal_handler(signal.SIGUSR2, self._replacement.start, "SIGUSR2")
        self._gateway.replace = self._replacement.replace
        if self._predecessor is None:
            self._replacement.open()
            await self._gateway.settled()  # operators' pages answer meanwhile
        else:
            _log.info("This gateway has taken over from process %d", self._predecessor.pid)
        greeting = self._greeting(self.listeners.url)
        json = self._gateway.config.telemetry.log_format == "json"
        click.echo(json_line(_log.name, greeting.splitlines()[0]) if json else greeting)
        self._ready()

    async def _take_over(self, predecessor: Predecessor) -> None:
        """Start in place of ``predecessor``, which goes on if this raises ``EnginehouseError``."""
        await self._gateway.probed()
        lock = await predecessor.leave_engines()
        state_file = StateFile(state_folder(self._gateway.config.server.name), lock)
        self._predecessor_gone = asyncio.ensure_future(predecessor.gone())
        self._gateway.build_hosts(state_file, self._predecessor_gone)
        await self._gateway.start()
        await asyncio.wait([asyncio.ensure_future(self._gateway.settled())], timeout=_SETTLE_S)
        self._replacement.open()
        try:
            self._gateway.callers.accounting.recall(await predecessor.retire())
        except TakeOverFailed:
            self._gateway.give_up()
            raise

    def _ready(self) -> None:
        self._tell("ready", self.listeners.url)

    def accepts(self) -> bool:
        """Whether someone accepts connections, or none should be accepted any more."""
        return self._workers is None or self._workers.serves

    def _workers_lost(self) -> None:
        self.problem = EnginehouseError("No worker is left, and the processes that fork them have been killed")
        self.should_exit = True
        self.woken.set()

    # --- another gateway takes over

    async def accept(self) -> None:
        if self._workers is None:
            await super().accept()
        else:
            self._workers.accept(True)

    def stop_accepting(self) -> None:
        if self._workers is None:
            super().stop_accepting()
        else:
            self._workers.accept(False)

    def _leave(self, pid: int) -> None:
        folder = self._gateway.state_folder
        assert folder is not None
        self._tell("replaced", str(pid))
        self.successor = SuccessorGateway(folder)
        self.should_exit = True
        self.woken.set()

    def _reload(self) -> None:
        self._tell("reloading", "")
        reload = self._gateway.reloader.start_reload("SIGHUP")
        reload.add_done_callback(lambda _: self._ready())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.woken.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take requests for ``server.drain_delay``, then wait for live ones; ``server.drain_timeout`` ends them."""
        relay, limit = self._gateway.relay, self._gateway.config.server.drain_timeout
        loop = asyncio.get_running_loop()
        if self.successor is not None:
            ending = loop.call_later(limit, self._end_live, self.successor)
            self._gateway.give_up()
            self.pass_on(self.successor.take)
            if self._workers is not None:
                self._workers.pass_on(self.successor.folder)
            await asyncio.wait([asyncio.ensure_future(relay.web_sockets_ended())], timeout=limit)
        else:
            self._replacement.close()
            self._tell("stopping", "")
            self._gateway.health.leaving = True
            await self._wait_out(self._gateway.config.server.drain_delay)
            self._gateway.refuse_new()
            await relay.web_sockets_ended()  # else uvicorn closes them with 1012 (service restart)
            ending = loop.call_later(limit, self._gateway.end_live)
        if self._workers is not None:
            self.listeners.close()
            await self._workers.leave(limit)
            self._workers.close()
        elif self.successor is not None:
            self.listeners.close()
        else:
            await self.close_listeners()
        try:
            await self.end(limit, self._gateway.stop)
        finally:
            ending.cancel()
        if self.successor is not None and self._predecessor_gone is not None:
            await asyncio.wait({self._predecessor_gone})  # to the successor, the end of this process frees the engines

    def _end_live(self, successor: SuccessorGateway) -> None:
        """Have the successor continue streams, and end the other requests."""
        self.pass_streams_on(successor.take)
        if self._workers is not None:
            self._workers.end_live()  # before the owner cancels what they have
        self._gateway.end_live()

    async def _wait_out(self, seconds: float) -> None:
        """Wait; a second signal ends it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self.force_exit and (left := end - loop.time()) > 0:  # noqa: ASYNC110 - uvicorn sets a flag
            await asyncio.sleep(min(left, _LOOK_EVERY_S))
