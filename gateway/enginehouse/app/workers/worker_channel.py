"""A worker's side of the channel to the owner."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from enginehouse.app.workers.channel import Channel
from enginehouse.app.workers.messages import (
    Accept,
    AskExited,
    AskSlot,
    Configure,
    EndLive,
    Leave,
    LogLines,
    PassOnTo,
    Submit,
    WorkerMessage,
)
from enginehouse.telemetry.log_ring import LogRing

Handlers = Mapping[type[WorkerMessage], Callable[[Any], None]]
"""What is done with each kind of message."""


class WorkerChannel:
    """Hands the owner's messages to a worker, once it is made from the ``first`` one.

    ``on_leave`` is called when the worker is to stop, with whether its live requests end at once: the owner says so, or
    is gone. ``on_connections``: with what becomes of connections.
    """

    def __init__(
        self, on_leave: Callable[[bool], None], on_connections: Callable[[Accept | PassOnTo], None] = lambda _: None
    ) -> None:
        self.first: asyncio.Future[Configure] = asyncio.get_running_loop().create_future()
        self._on_leave = on_leave
        self._handlers: dict[type[WorkerMessage], Callable[[Any], None]] = {
            Accept: on_connections,
            PassOnTo: on_connections,
            Leave: lambda _: on_leave(False),
            EndLive: lambda _: on_leave(True),
        }
        self._on_lost: Callable[[], None] | None = None
        self._early: list[WorkerMessage] = []
        self._channel = Channel(self._take, self._lost)

    async def open(self, connected: socket.socket) -> None:
        """Begin to listen to the owner."""
        await self._channel.open(connected)

    @property
    def waiting(self) -> int:
        """The bytes that the owner has not read."""
        return self._channel.waiting

    def send(self, message: msgspec.Struct) -> None:
        """Send the owner a message."""
        self._channel.send(message)

    async def ask_exited(self, backend: str, replica: str, generation: int) -> bool:
        return bool(await self._channel.ask(lambda call: AskExited(call, backend, replica, generation)))

    async def ask_slot(self, ticket: Submit) -> int | None:
        generation: int | None = await self._channel.ask(lambda call: AskSlot(call, ticket))
        return generation

    def attach(self, handlers: Handlers, on_lost: Callable[[], None]) -> None:
        """Have these ``handlers``, from ``take_early`` on. ``on_lost`` is called when the owner is gone."""
        self._handlers |= handlers
        self._on_lost = on_lost

    def take_early(self) -> None:
        """Hand over what came while the worker was being made."""
        early, self._early = self._early, []
        for message in early:
            self._take(message)

    def close(self) -> None:
        """Say nothing more."""
        self._channel.close()

    def _take(self, message: WorkerMessage) -> None:
        if self._on_lost is not None:
            self._handlers[type(message)](message)
        elif isinstance(message, Configure) and not self.first.done():
            self.first.set_result(message)
        else:
            self._early.append(message)

    def _lost(self) -> None:
        if not self.first.done():
            self.first.cancel()
        if self._on_lost is not None:
            self._on_lost()
        self._on_leave(False)


class SentLog(LogRing):
    """Sends the lines of a worker's log to the owner, who keeps them. Keeps none itself."""

    def __init__(self, send: Callable[[msgspec.Struct], None]) -> None:
        super().__init__()
        self._send = send

    def write(self, data: bytes) -> None:
        self._send(LogLines(data))
