"""The side of a running gateway: another one takes over, gets its connections, and gives it those of an earlier one."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.interfaces.accounting import TakenLimit
from enginehouse.processes.take_over.channel import ChannelClosed, MessageChannel, connect_in, listen_in
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

_log = logging.getLogger(__name__)

_HELLO_S = 10.0
"""How long whoever connects may say nothing."""
_BUILD_S = 30.0
"""How long the new gateway may take to load its plugins and to probe backends. Then others may take over."""
_LEAVE_S = 30.0
"""How long engines that are being stopped may delay a take-over."""
_TAKE_S = 30.0
"""How long the new gateway may take to find the engines. Then this one goes on."""
_READ_S = 10.0
"""A gateway that has not read for so long hangs, and gets no connections any more."""


class SuccessorGateway:
    """The gateway that has taken over, in ``folder``, as the one that leaves sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._passed: asyncio.Queue[tuple[int, PassedConnection] | None] = asyncio.Queue()
        self._passing = asyncio.ensure_future(self._pass_all())

    def take(self, descriptor: int, received: bytes, stream: bytes = b"") -> None:
        """Give the successor a client's connection, whose ``descriptor`` the caller closes, with what it has sent.

        ``stream``: the state of the stream that is the beginning of its answer.
        """
        self._passed.put_nowait((os.dup(descriptor), PassedConnection(received=received, stream=stream)))

    async def close(self) -> None:
        """Return when the successor has every connection."""
        self._passed.put_nowait(None)
        await self._passing

    async def _pass_all(self) -> None:
        channel: MessageChannel | None = None
        hangs = False
        while (passed := await self._passed.get()) is not None:
            descriptor, connection = passed
            try:
                if not hangs:
                    channel = channel or await self._connect()
                    await run_within(_READ_S, channel.send(connection, [descriptor]))
            except (OSError, ChannelClosed) as error:
                hangs = isinstance(error, TimeoutError)
                why = f"it has not read for {_READ_S:g} s, and gets no others" if hangs else str(error)
                _log.warning("The new gateway did not take a client's connection, which is closed: %s", why)
                if channel is not None:
                    channel.close()
                    channel = None
            finally:
                os.close(descriptor)
        if channel is not None:
            channel.close()

    async def _connect(self) -> MessageChannel:
        channel = MessageChannel(connect_in(self.folder))
        await channel.send(Hello.of_this_process("connections"))
        return channel


class ReplaceableGateway(Protocol):
    """What the server of a running gateway does for a take-over."""

    def listening(self) -> Sequence[int]:
        """The descriptors of the listening sockets."""

    async def pause(self) -> int:
        """Accept no connections and touch no engine. Returns the descriptor of the lock."""

    def resume(self) -> None:
        """Go on as before ``pause``."""

    def taken(self) -> Mapping[str, TakenLimit]:
        """What is taken of the limits of keys."""

    def drains_within(self) -> float:
        """The seconds in which it drains."""

    def leave(self, pid: int) -> None:
        """The process ``pid`` has taken over: drain, give it the connections, and end."""

    def adopt(self, connection: socket.socket, passed: PassedConnection) -> None:
        """Serve a client of an earlier gateway."""


class TakeOverServer:
    """Listens in the state folder ``folder`` for other gateways, from ``open`` to ``close``."""

    def __init__(self, folder: Path, gateway: ReplaceableGateway) -> None:
        self._folder = folder
        self._gateway = gateway
        self._tasks = BackgroundTasks()
        self._adopting = BackgroundTasks()
        self._busy = False

    def open(self) -> None:
        """Listen. A folder in which that is impossible only rules a take-over out."""
        try:
            listener = listen_in(self._folder)
        except OSError as error:
            _log.warning("No other gateway can take over from this one: %s", error)
            return
        self._tasks.start(self._accept(listener))

    def close(self) -> None:
        """Listen no more. Connections that an earlier gateway passes still come."""
        self._tasks.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        with closing(listener):
            while True:
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                channel = MessageChannel(connection)
                self._adopting.start(self._converse(channel))

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
                    self._gateway.adopt(socket.socket(fileno=each), passed)

    async def _offer(self, channel: MessageChannel, hello: Hello) -> None:
        if refused := self._why_not(hello):
            _log.warning("Process %d may not take over: %s", hello.pid, refused)
            await channel.send(TakeOverOffer(version=VERSION, pid=os.getpid(), refused=refused))
            return
        self._busy = True
        try:
            _log.info("Process %d (version %s) is about to take over", hello.pid, hello.version)
            await channel.send(TakeOverOffer(version=VERSION, pid=os.getpid()), self._gateway.listening())
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
            lock = await run_within(_LEAVE_S, self._gateway.pause())
        except TimeoutError:
            self._gateway.resume()
            refused = f"engines have been stopping for {_LEAVE_S:g} s; try again when they have stopped"
            await channel.send(EnginesLeft(refused=refused))
            return
        try:
            await channel.send(EnginesLeft(), [lock])
            await run_within(_TAKE_S, channel.receive(EnginesTaken))
            gateway = self._gateway
            await channel.send(Retired(limits=gateway.taken(), ends_within=gateway.drains_within()))
        except (ChannelClosed, TimeoutError) as error:
            _log.error(
                "Process %d has not taken over, and this gateway keeps serving: %s", pid, str(error) or "too late"
            )
            self._gateway.resume()
            self.close()
            self.open()  # the other one may have taken the place in the folder
        else:
            _log.info("Process %d has taken over. This gateway drains and ends", pid)
            self._gateway.leave(pid)
            await asyncio.Event().wait()  # the end of this process ends the conversation
