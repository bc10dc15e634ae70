"""An engine that a gateway launches, without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, cast

from enginehouse import ReplicaState
from enginehouse.app import Gateway
from enginehouse.scheduling.host_engines import EngineControl
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.observers import Observers
from enginehouse.tickets import HostedReplica, HostFacts, SchedulingLimits
from enginehouse_kit.testing import OneAtATime
from enginehouse_scheduling.fifo import Fifo
from tests.support.served_gateway import MODEL
from tests.support.waiting import until


class HasGateway(Protocol):
    """A gateway with what is around it."""

    gateway: Gateway


class LaunchedEngine(EngineControl):
    """An engine that the gateway launches: it gets ready, fails and ends when the test says so."""

    def __init__(self, gateway: HasGateway, backend: str, concurrency: int = 0) -> None:
        self.replica = f"{MODEL}@{backend}"
        self.state = ReplicaState.STOPPED
        self.starts = 0
        self._start: asyncio.Future[None] | None = None
        scheduler = Fifo()
        self.queue = HostQueue("local", scheduler, self, Observers())
        hosted = HostedReplica(replica=self.replica, model=MODEL, concurrency=concurrency)
        facts = HostFacts(name="local", replicas={self.replica: hosted})
        limits = SchedulingLimits(cancel_loads=gateway.gateway.config.scheduling.cancel_loads)
        scheduler.prepare(self.queue, OneAtATime(), facts, limits)
        queues = cast("dict[str, HostQueue]", gateway.gateway.relay.context.queues)
        queues[backend] = self.queue

    @property
    def is_starting(self) -> bool:
        return self._start is not None and not self._start.done()

    async def starting(self) -> None:
        """Until it was started for the first time."""
        await until(lambda: self.starts)

    async def gets_ready(self) -> None:
        """Its start ends well, once there is one, and its host knows."""
        start = await self._started()
        self.state = ReplicaState.READY
        start.set_result(None)
        await until(lambda: not [*self.queue._swaps])

    async def does_not_start(self, error: Exception) -> None:
        """Its start fails, once there is one."""
        (await self._started()).set_exception(error)

    def exits(self) -> None:
        """It goes away by itself."""
        self.state = ReplicaState.FAILED
        self.queue.exited(self.replica)

    async def stopped(self) -> None:
        """Until its start was given up."""
        await until(lambda: self.state is ReplicaState.STOPPED)

    async def _started(self) -> asyncio.Future[None]:
        await until(lambda: self.is_starting)
        assert self._start is not None
        return self._start

    # --- as its host sees it

    def states(self) -> Mapping[str, ReplicaState]:
        return {self.replica: self.state}

    async def start(self, replica: str) -> None:
        self.starts += 1
        self.state = ReplicaState.STARTING
        self._start = asyncio.get_running_loop().create_future()
        try:
            await self._start
        except BaseException:
            self.state = ReplicaState.STOPPED
            raise

    async def stop(self, replica: str, timeout: float | None) -> None: ...


class Launch(Protocol):
    """Makes a backend of a gateway one that the gateway launches."""

    def __call__(self, gateway: HasGateway, backend: str, concurrency: int = 0) -> LaunchedEngine: ...
