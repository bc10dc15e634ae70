"""A gateway's workers in the event loop of the test: what their processes would say goes over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import socket

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app import Gateway
from enginehouse.processes.workers.fork_server import ForkServer
from enginehouse.processes.workers.shared_memory import WorkerMemory
from enginehouse.processes.workers.worker import Worker, WorkerChannel
from enginehouse.processes.workers.worker_pool import WorkerPool
from enginehouse.telemetry.logs import GatewayLog


class WorkersInLoop(ForkServer):
    """``count`` workers of ``gateway``."""

    def __init__(self, gateway: Gateway, count: int) -> None:
        self.workers: dict[int, Worker] = {}
        self._gateway = gateway
        self._memory = WorkerMemory(count, gateway.registry)
        self._pids = itertools.count(1)
        self._tasks = BackgroundTasks()
        self.pool = WorkerPool(gateway, self._memory, self)

    async def start(self) -> None:
        """Start them, and wait until they know the configuration and all backends."""
        await self.pool.start()

    async def stop(self) -> None:
        """End them."""
        self.pool.close()
        for worker in self.workers.values():
            await worker.stop()
        await asyncio.sleep(0)
        self._tasks.cancel()

    @property
    def held(self) -> int:
        """The bytes of bodies that workers hold."""
        return sum(worker.admission.body_memory.held for worker in self.workers.values())

    async def fork(self, number: int) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        self._tasks.start(self._serve(number, theirs))
        return next(self._pids), ours

    async def keep_spare(self) -> None: ...

    def kill(self, pid: int) -> None:
        raise AssertionError("a worker hangs")

    def close(self) -> None: ...

    async def _serve(self, number: int, owner: socket.socket) -> None:
        channel = WorkerChannel()
        await channel.open(owner)
        first = await channel.first
        worker = Worker(number, first, self._gateway.registry, channel, self._memory, GatewayLog())
        worker.start()
        channel.take_held()
        self.workers[number] = worker
        worker.tell_ready()
