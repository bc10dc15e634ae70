"""A worker's side of the channel to the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from enginehouse.app.workers.channel import Channel
from enginehouse.app.workers.messages import (
    AskExited,
    AskSlot,
    Configure,
    LogLines,
    Submit,
    WorkerMessage,
)
from enginehouse.telemetry.log_ring import LogRing

Handlers = Mapping[type[WorkerMessage], Callable[[Any], None]]
"""What is done with each kind of message."""


class WorkerChannel(Channel):
    """Hands the owner's messages to the parts of a worker, once they are made from the ``first`` one."""

    def __init__(self) -> None:
        super().__init__(self._take, self._lost)
        self.first: asyncio.Future[Configure] = asyncio.get_running_loop().create_future()
        self._handlers: dict[type[WorkerMessage], Callable[[Any], None]] = {}
        self._when_lost: list[Callable[[], None]] = []
        self._early: list[WorkerMessage] | None = []

    async def ask_exited(self, backend: str, replica: str, generation: int) -> bool:
        """Whether an engine that broke a request off has exited. Raises ``RequestError`` if the owner is gone."""
        return bool(await self.ask(lambda call: AskExited(call, backend, replica, generation)))

    async def ask_slot(self, ticket: Submit) -> int | None:
        """The engine's generation if ``ticket`` is granted now. Raises ``RequestError`` if the owner is gone."""
        generation: int | None = await self.ask(lambda call: AskSlot(call, ticket))
        return generation

    def attach(self, handlers: Handlers, on_lost: Callable[[], None]) -> None:
        """Have these ``handlers``, from ``take_early`` on. ``on_lost`` is called when the owner is gone."""
        self._handlers |= handlers
        self._when_lost.append(on_lost)

    def take_early(self) -> None:
        """Hand over what came while the worker was being made."""
        early, self._early = self._early or (), None
        for message in early:
            self._take(message)
        if self.closed:
            self._lost()

    def _take(self, message: WorkerMessage) -> None:
        if self._early is None:
            self._handlers[type(message)](message)
        elif isinstance(message, Configure) and not self.first.done():
            self.first.set_result(message)
        else:
            self._early.append(message)

    def _lost(self) -> None:
        if not self.first.done():
            self.first.cancel()
        for on_lost in self._when_lost:
            on_lost()


class SentLog(LogRing):
    """Sends the lines of a worker's log to the owner, who keeps them. Keeps none itself."""

    def __init__(self, send: Callable[[msgspec.Struct], None]) -> None:
        super().__init__()
        self._send = send

    def write(self, data: bytes) -> None:
        self._send(LogLines(data))
