"""A worker's side of the channel to the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from enginehouse.processes.workers.channel import Channel, Send
from enginehouse.processes.workers.messages import Configuration, ToOwner, ToWorker
from enginehouse.telemetry.log_ring import LogRing


class WorkerChannel(Channel):
    """Hands the owner's calls to the parts of a worker, once they are made from the ``first`` configuration."""

    def __init__(self) -> None:
        super().__init__(self._lost)
        self.first: asyncio.Future[Configuration] = asyncio.get_running_loop().create_future()
        self.when_lost: list[Callable[[], None]] = []
        self._early: list[tuple[str, int, msgspec.Raw]] | None = []

    def take_early(self) -> None:
        """Hand over what came while the parts were being made."""
        early, self._early = self._early or (), None
        for name, call, arguments in early:
            self._receive(name, call, arguments)
        if self.closed:
            self._lost()

    def _receive(self, name: str, call: int, arguments: msgspec.Raw) -> None:
        if self._early is None:
            super()._receive(name, call, arguments)
        elif name == ToWorker.configure.__name__ and not self.first.done():
            (first,) = msgspec.msgpack.decode(arguments, type=tuple[Configuration])
            self.first.set_result(first)
        else:
            self._early.append((name, call, arguments))

    def _lost(self) -> None:
        if not self.first.done():
            self.first.cancel()
        for lost in self.when_lost:
            lost()


class SentLog(LogRing):
    """Sends the lines of a worker's log to the owner, who keeps them. Keeps none itself."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def write(self, data: bytes) -> None:
        self._send(ToOwner.log, data)
