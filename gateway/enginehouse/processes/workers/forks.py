"""What workers need before any thread of the gateway runs, and how their processes begin."""

from __future__ import annotations

import asyncio
import socket

import uvicorn

from enginehouse.aio.serving import SERVING
from enginehouse.app.gateway import Gateway
from enginehouse.config.schema import Config
from enginehouse.plugin_manager.registry import Registry
from enginehouse.processes.listen import Listeners
from enginehouse.processes.workers.fork_server import ForkServer
from enginehouse.processes.workers.shared_memory import WorkerMemory
from enginehouse.processes.workers.worker_pool import WorkerPool
from enginehouse.processes.workers.worker_server import serve_as_worker


class Forks:
    """The sockets, the shared memory and the process that forks workers. Make it before any thread runs.

    ``accounts``: what the owner shares of its accounting.
    """

    def __init__(self, settings: Config, registry: Registry, count: int, listeners: Listeners) -> None:
        self._memory = memory = WorkerMemory(count, registry)
        self.accounts = memory.accounts(count)

        def serve(number: int, owner: socket.socket) -> None:
            factory = uvicorn.Config("", log_config=None).get_loop_factory() or asyncio.new_event_loop
            loop = factory()
            asyncio.set_event_loop(loop)
            SERVING.is_stopping = lambda: False  # the owner kills a worker that does not stop
            loop.run_until_complete(serve_as_worker(number, owner, settings, registry, listeners, memory))

        self._server = ForkServer(serve)

    def pool(self, gateway: Gateway) -> WorkerPool:
        """The workers of ``gateway``, which are not started yet."""
        return WorkerPool(gateway, self._memory, self._server)
