"""The decisions of a gateway, in front of engines that its caller simulates."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from enginehouse.aio.clock import Clock
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.build import build_drivers, build_fleet, first_host_context
from enginehouse.app.build_rescheduling import build_rescheduler
from enginehouse.app.build_router import build_router, settle
from enginehouse.app.plugin_instances import check_parameters, create_installed
from enginehouse.app.virtual.virtual_engines import VirtualBackend, VirtualEngines
from enginehouse.app.virtual.virtual_host import VirtualHost
from enginehouse.app.virtual.virtual_request import VirtualRequest
from enginehouse.app.virtual.virtual_rescheduling import virtual_surroundings
from enginehouse.config.schema import Config
from enginehouse.domain.request import InferenceRequest
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.route import Route
from enginehouse.engines.managed_engines import hosts_of
from enginehouse.engines.probing.prober import Prober
from enginehouse.engines.remote_queues import RemoteQueues
from enginehouse.engines.status_publisher import StatusPublisher
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.outside import Outside
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.observers import Observers, notify

_SWEEP_S = 1.0


class VirtualGateway:
    """A gateway without doors, relay and real engines: its routing, queues, swaps and retries are those of ``serve``.

    ``engines`` simulates the engines. Make and use the gateway inside a running event loop, whose clock all decisions
    use; on a loop with a virtual clock, hours pass at once. ``live`` has the requests at engines, by id. Raises
    ``ConfigError`` or ``PluginError``, as ``serve`` does.
    """

    def __init__(self, config: Config, registry: Registry, engines: VirtualEngines) -> None:
        check_parameters(config, registry)
        config, self.warnings = settle(config, registry)
        self.config = config
        self.engines = engines
        self.now = asyncio.get_running_loop().time
        self.max_retries = config.routing.max_retries
        self._observers = Observers(observer for _, observer in create_installed(config, registry, "observer"))
        self._on_routed = self._observers.callbacks("routed")
        self._on_finished = self._observers.callbacks("finished")
        self._ids = itertools.count(1)
        self._tasks = BackgroundTasks()
        self.fleet = build_fleet(config, self._observers, self.now)
        self.router = build_router(config, registry)
        drivers = build_drivers(config, registry, {})
        context = first_host_context(
            config,
            registry,
            fleet=self.fleet,
            drivers=drivers,
            observers=self._observers,
            outside=Outside(Clock(self.now, self.now)),
        )
        publisher = StatusPublisher(context, Prober(self.fleet, config.checks))
        self._hosts = [VirtualHost(name, context, publisher, engines) for name in dict.fromkeys(hosts_of(config))]
        self._remote = RemoteQueues(context, self._list_queues)
        self.queues: dict[str, HostQueue] = {}
        self.live: dict[str, VirtualRequest] = {}
        self._remote.open()
        self._list_queues()
        around = virtual_surroundings(self, context)
        self._counters = around.counters
        self.rescheduler = build_rescheduler(config, registry, around, self._observers.callbacks("migrated"))

    @property
    def backends(self) -> Sequence[VirtualBackend]:
        """Every engine: the remote ones, then those that are launched."""
        return [*self._remote_backends(), *(each for host in self._hosts for each in host.backends.values())]

    @property
    def models(self) -> Sequence[str]:
        """The models that are served."""
        return list(self.fleet.snapshot.models)

    @property
    def swaps(self) -> int:
        """The swaps that ended well."""
        return sum(host.swaps for host in self._hosts)

    @property
    def failed_migrations(self) -> int:
        """The migrations that failed or moved nothing."""
        return sum(self._counters.failed_migrations.values())

    @property
    def waiting(self) -> int:
        """The requests that wait in queues."""
        queues = dict.fromkeys(self.queues.values())
        return sum(len(queue.waiting()) for queue in queues)

    async def open(self) -> None:
        """Ask remote engines for their models, and preload models."""
        for backend in self._remote_backends():
            models, limit = self.engines.probe(backend)
            self.fleet.set_models(backend.name, {model.name: model.capabilities for model in models})
            self.fleet.probe_succeeded(backend.name)
            self._remote.report(backend.name, limit)
        await asyncio.gather(*(host.preload() for host in self._hosts))
        if any(model.ttl for model in self.config.models.values()):
            self._tasks.start(self._keep_sweeping())
        self.rescheduler.start()

    def submit(self, request: InferenceRequest, subject: Any = None) -> VirtualRequest:
        """Submit a client's whole request. The engines get it, or its refusal, possibly before this returns.

        Raises the ``RequestError`` of an extractor.
        """
        submitted = VirtualRequest(self, str(next(self._ids)), self.router.requirements(request), subject)
        submitted.start()
        return submitted

    def close(self) -> None:
        """End the background work."""
        self._tasks.cancel()
        self.rescheduler.stop()

    def routed(self, request: VirtualRequest, route: Route) -> None:
        """Notify observers of a route."""
        if self._on_routed:
            notify(self._on_routed, request.id, request.requirements, route)

    def finished(self, request: VirtualRequest, status: int) -> None:
        """Notify observers of the end of a request."""
        if self._on_finished:
            notify(self._on_finished, _record(request, status, self.now()))

    def _remote_backends(self) -> Sequence[VirtualBackend]:
        return [
            VirtualBackend(name=name, driver=backend.driver, models=tuple(backend.models or ()))
            for name, backend in self.config.backends.items()
        ]

    def _list_queues(self) -> None:
        self.queues.clear()
        for host in self._hosts:
            self.queues.update(dict.fromkeys((backend.name for backend in host.backends.values()), host.queue))
        self.queues.update(self._remote.queues)

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            for host in self._hosts:
                host.release_idle()


def _record(request: VirtualRequest, status: int, now: float) -> RequestRecord:
    """The record of a request that ends ``now``."""
    needs, chosen = request.requirements, request.route.chosen if request.route is not None else None
    return RequestRecord(
        request.id,
        "POST",
        needs.path,
        status,
        "served" if status < 400 else "failed",
        request.began,
        now,
        asked=needs.model,
        model=chosen.model if chosen is not None else None,
        backend=chosen.backend if chosen is not None else None,
        stream=needs.stream,
    )
