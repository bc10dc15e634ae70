"""A worker's side of the channel to the owner."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

from enginehouse.app.workers.channel import Channel
from enginehouse.app.workers.messages import (
    Accept,
    Act,
    AskExited,
    AskSlot,
    Configure,
    Drain,
    EndLive,
    FromOwner,
    Granted,
    Judged,
    Learned,
    Leave,
    LogLines,
    MoveRequest,
    PageOut,
    PassOnTo,
    Positions,
    QueueChanged,
    Recall,
    Refused,
    Submit,
    Told,
    Views,
    WantReport,
    WatchRequests,
    told,
)
from enginehouse.app.workers.outcomes import OutcomeSender
from enginehouse.app.workers.pages import OwnerPages
from enginehouse.app.workers.remote_queue import OwnerQueues
from enginehouse.telemetry.log_ring import LogRing


class Follower(Protocol):
    """A worker, as its channel sees it."""

    queues: OwnerQueues
    outcomes: OutcomeSender
    pages: OwnerPages

    def configure(self, message: Configure) -> None: ...

    def follow(self, message: Views) -> None: ...

    def queue_changed(self) -> None: ...

    def learn(self, message: Learned) -> None: ...

    def watch(self, message: WatchRequests) -> None: ...

    def drain(self, message: Drain) -> None: ...

    def act(self, message: Act) -> None: ...

    def move(self, message: MoveRequest) -> None: ...

    def report(self, message: WantReport) -> None: ...


class WorkerChannel:
    """Hands the owner's messages to ``worker``, once it is made from the ``first`` one.

    ``on_leave`` is called when the worker is to stop, with whether its live requests end at once: the owner says so, or
    is gone. ``on_connections``: with what becomes of connections.
    """

    def __init__(
        self, on_leave: Callable[[bool], None], on_connections: Callable[[Accept | PassOnTo], None] = lambda _: None
    ) -> None:
        self.worker: Follower | None = None
        self.first: asyncio.Future[Configure] = asyncio.get_running_loop().create_future()
        self._on_leave = on_leave
        self._on_connections = on_connections
        self._early: list[FromOwner] = []
        self._channel: Channel[FromOwner] = Channel(FromOwner, self._take, self._lost)

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

    def take_early(self) -> None:
        """Hand over what came while the worker was being made."""
        early, self._early = self._early, []
        for message in early:
            self._take(message)

    def close(self) -> None:
        """Say nothing more."""
        self._channel.close()

    def _take(self, message: FromOwner) -> None:
        worker = self.worker
        if worker is None:
            if isinstance(message, Configure) and not self.first.done():
                self.first.set_result(message)
            else:
                self._early.append(message)
            return
        if isinstance(message, Granted):
            worker.queues.granted(message)
        elif isinstance(message, Refused):
            worker.queues.refused(message)
        elif isinstance(message, PageOut):
            worker.pages.answer(message)
        elif isinstance(message, Views):
            worker.follow(message)
        elif isinstance(message, WantReport):
            worker.report(message)
        elif isinstance(message, Told):
            self._channel.answer(message.call, message.value, told(message.error) if message.error else None)
        else:
            self._take_rare(worker, message)

    def _take_rare(self, worker: Follower, message: FromOwner) -> None:
        if isinstance(message, Positions):
            worker.queues.put_positions(message)
        elif isinstance(message, QueueChanged):
            worker.queue_changed()
        elif isinstance(message, Judged):
            worker.outcomes.judged()
        elif isinstance(message, WatchRequests):
            worker.watch(message)
        elif isinstance(message, Learned):
            worker.learn(message)
        elif isinstance(message, Recall):
            worker.queues.recall(message)
        elif isinstance(message, Configure):
            worker.configure(message)
        elif isinstance(message, Drain):
            worker.drain(message)
        elif isinstance(message, Act):
            worker.act(message)
        elif isinstance(message, MoveRequest):
            worker.move(message)
        elif isinstance(message, (Accept, PassOnTo)):
            self._on_connections(message)
        elif isinstance(message, (Leave, EndLive)):
            self._on_leave(isinstance(message, EndLive))

    def _lost(self) -> None:
        if not self.first.done():
            self.first.cancel()
        if self.worker is not None:
            self.worker.pages.lost()
        self._on_leave(False)


class SentLog(LogRing):
    """Sends the lines of a worker's log to the owner, who keeps them. Keeps none itself."""

    def __init__(self, send: Callable[[msgspec.Struct], None]) -> None:
        super().__init__()
        self._send = send

    def write(self, data: bytes) -> None:
        self._send(LogLines(data))
