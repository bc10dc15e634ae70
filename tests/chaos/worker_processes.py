"""Workers of the gateway: processes that share the run's event loop, and that can be killed one by one."""

from __future__ import annotations

import asyncio
import importlib
import os
import types
from typing import TYPE_CHECKING, Any, cast

from enginehouse.app.gateway import Gateway
from enginehouse.plugin_manager.registry import Registry
from enginehouse.processes.accepting import AcceptingServer
from enginehouse.processes.listen import Listeners
from enginehouse.processes.workers.fork_server import ForkServer
from enginehouse.processes.workers.shared_memory import WorkerMemory
from enginehouse.processes.workers.worker import Worker, WorkerChannel
from enginehouse.processes.workers.worker_pool import WorkerPool
from enginehouse.relay.upstream.outside import Outside
from tests.chaos.chaos_loop import ProcessLoop
from tests.chaos.network import Factory, ListeningAddress
from tests.chaos.virtual_time import GATEWAY_CLOCK, OrderedSet

if TYPE_CHECKING:
    from tests.chaos.world import World


def _module(name: str) -> Any:
    return importlib.import_module(name)


class VirtualForks(ForkServer):
    """Makes the workers of one gateway, in the place of ``Forks``. Each has an event loop of its own, but no process.

    ``workers``: by their process ids, those that have not been killed. ``full``: how many forks will fail next, because
    the system has no room for a process.
    """

    def __init__(self, world: World, registry: Registry, count: int) -> None:
        self.memory = WorkerMemory(count, registry)
        self.accounts = self.memory.accounts(count)
        self.workers: dict[int, Worker] = {}
        self.full = 0
        self._loops: dict[int, ProcessLoop] = {}
        self._world = world
        self._gateway: Gateway

    def pool(self, gateway: Gateway) -> WorkerPool:
        """The workers of ``gateway``."""
        self._gateway = gateway
        return WorkerPool(gateway, self.memory, self)

    async def fork(self, number: int) -> tuple[int, Any]:
        if self.full:
            self.full -= 1
            raise BlockingIOError("the bench has no room for a process")
        pid, world, gateway = 100 + len(self._loops), self._world, self._gateway
        self._loops[pid] = loop = ProcessLoop(world.loop)
        loop.set_exception_handler(world._defect)
        loop.network = _WorkerNetwork(world, loop)
        ours, theirs = world.network.pair(f"worker {pid}", world.loop, loop)
        serve = _module("enginehouse.processes.workers.worker_server").serve_as_worker
        listeners = _WorkerListeners(self, pid)
        main = loop.create_task(serve(number, theirs, gateway.config, gateway.registry, listeners, self.memory))
        main.add_done_callback(lambda _: self._exited(pid, main))
        return pid, ours

    async def keep_spare(self) -> None: ...

    def kill(self, pid: int) -> None:
        loop = self._loops[pid]
        if not loop.is_dead:
            self._world.note("bench", f"kills worker {pid}")
            self._exit(pid)

    def _exited(self, pid: int, main: asyncio.Task[None]) -> None:
        if (error := main.exception()) is not None:
            self._world.violated(f"worker {pid} ended with {error!r}")
            self._world.taps.traceback(error)
        self._exit(pid)

    def _exit(self, pid: int) -> None:
        """What the system does with a process that has ended."""
        self._loops[pid].kill()
        self.workers.pop(pid, None)
        self._world.network.exit_of(self._loops[pid])

    def running(self) -> list[int]:
        """The workers that have not ended."""
        return [pid for pid, loop in self._loops.items() if not loop.is_dead]

    def close(self) -> None: ...

    def end(self) -> None:
        """Let all end at once, and give back what the system has lent."""
        for pid, loop in self._loops.items():
            self.kill(pid)
            loop.close()
        os.close(self.accounts.memory._lock)


class _WorkerNetwork:
    """The virtual network as a worker's event loop sees it."""

    def __init__(self, world: World, loop: ProcessLoop) -> None:
        self._network = world.network
        self._loop = loop

    async def connect(self, factory: Factory, host: str, port: int) -> Any:
        return await self._network.from_gateway(factory, host, port, self._loop)

    def listen(self, factory: Factory, sock: Any) -> ListeningAddress:
        return self._network.listen("gateway", sock, factory, self._loop)


class _WorkerListeners(Listeners):
    """The gateway's address, which is none of the worker's own. Tells ``forks`` of the worker that listens there."""

    def __init__(self, forks: VirtualForks, pid: int) -> None:
        super().__init__([])
        self._forks = forks
        self._pid = pid

    def copies(self) -> list[Any]:
        from tests.chaos.world import GATEWAY

        return [GATEWAY]

    def has_worker(self, worker: Worker) -> None:
        self._forks.workers[self._pid] = worker


def replace() -> None:
    """Replace what would read the machine in a worker."""
    worker, server, pool = (
        _module(f"enginehouse.{name}")
        for name in ("processes.workers.worker", "processes.workers.worker_server", "processes.workers.worker_pool")
    )
    worker.Outside = lambda: Outside(GATEWAY_CLOCK)
    server.configure_logs = lambda *_: None
    server.gc = types.SimpleNamespace(freeze=lambda: None, set_threshold=lambda *_: None)
    row = pool.worker_row
    pool.worker_row = lambda pid, requests, version, _: row(pid, requests, version, 0.0)
    server.WorkerServer = _server_class(server.WorkerServer)


def _server_class(base: Any) -> Any:
    class ChaosWorkerServer(base):  # type: ignore[misc]
        def __init__(
            self, worker: Worker, channel: WorkerChannel, listeners: _WorkerListeners, connections: memoryview
        ) -> None:
            super().__init__(worker, channel, listeners, connections)
            self.server_state.connections = self._http.connections = OrderedSet()
            self.server_state.tasks = self._http.tasks = OrderedSet()
            listeners.has_worker(worker)

        async def accept(self) -> None:
            await AcceptingServer.accept(self)  # the virtual network has no descriptors

    return cast("Any", ChaosWorkerServer)
