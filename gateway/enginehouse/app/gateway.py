"""The whole house, and its life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from time import time

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route

from enginehouse.api.application import build_application
from enginehouse.api.endless import EndlessStreams
from enginehouse.api.entrance import Entrance
from enginehouse.api.events import Events
from enginehouse.api.keys import Keyring
from enginehouse.api.lifecycle import Lifecycle
from enginehouse.api.live import Live
from enginehouse.api.logs import Logs
from enginehouse.api.metrics import Metrics
from enginehouse.api.openai import Models
from enginehouse.api.operations import Operations
from enginehouse.api.reload import Reload
from enginehouse.api.upstream import UpstreamRoute
from enginehouse.app.build import (
    build_drivers,
    build_fleet,
    build_means,
    build_router,
    build_upstreams,
    check_parameters,
    check_scheduling,
    create,
    without_effect,
)
from enginehouse.app.changeover import Changeover, Parts
from enginehouse.app.reload import Reloads, Source
from enginehouse.config.load import Loaded
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ShuttingDown
from enginehouse.engines.hosts import Hosts
from enginehouse.engines.prober import Prober
from enginehouse.engines.state_file import StateFile, state_folder
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.waiting_room import WaitingRoom
from enginehouse.routing.body_filters import FiltersByName
from enginehouse.telemetry.broadcast import Broadcast
from enginehouse.telemetry.listeners import Observers
from enginehouse.telemetry.logs import OwnLog

_log = logging.getLogger(__name__)


class Gateway:
    """A whole gateway, built from its configuration; ``start`` and ``stop`` are the life of its background work.

    ``log``: where its own log is kept. ``source``: where its configuration is read anew; without one it stays.
    """

    def __init__(
        self, config: Config, registry: Registry, log: OwnLog | None = None, source: Source | None = None
    ) -> None:
        check_parameters(config, registry)
        for key in without_effect(config):
            _log.warning("%s has no effect in this version", key)
        self.registry = registry
        self.log = log or OwnLog()
        self.streams = EndlessStreams()
        self.observers = Observers(create(config, registry, "observer", t) for t in registry.types("observer"))
        self.fleet = build_fleet(config, self.observers)
        self._means = means = build_means(
            config,
            registry,
            fleet=self.fleet,
            upstreams=build_upstreams(config),
            drivers=build_drivers(config, registry, {}),
            observers=self.observers,
        )
        self.hosts = Hosts(means)
        check_scheduling(config, registry)
        self.relay = Relay(
            build_router(config, registry),
            self.fleet,
            means.upstreams,
            max_retries=config.routing.max_retries,
            filters=FiltersByName(config.models, config.routing.aliases),
            hosts=self.hosts.by_backend,
            waiting_room=WaitingRoom(config.models, config.scheduling, self.hosts.by_backend),
            observers=self.observers,
        )
        self.entrance = Entrance(self.relay, Keyring(config.auth.keys), max_body=config.server.max_body)
        self.reloads = Reloads(self, source or Source(lambda: Loaded(config, None, ()), None))
        self._prober: Prober | None = None
        self._state_file: StateFile | None = None
        self.application = self._application()

    @property
    def config(self) -> Config:
        """What is in force."""
        return self._means.config

    async def start(self) -> None:
        """Begin to probe and take over engines that still run.

        Returns when that is done and every remote backend was probed once, or that took too long.
        """
        self.log.open()
        checks = self.config.checks
        self._prober = prober = Prober(self.fleet, checks)
        for name, backend in self.config.backends.items():
            prober.add(name, self._means.drivers[backend.driver], Client(self.relay.upstreams[name], checks.timeout))
        first_round = asyncio.ensure_future(prober.first_round())
        server = self.config.server
        self._state_file = StateFile(state_folder(server.host, server.port))
        await self.hosts.open(self._state_file, prober)
        await asyncio.wait([first_round], timeout=checks.timeout)
        self.reloads.open()

    def refuse_new(self) -> None:
        """Take no more requests. Live ones may end; what would not end by itself does so at once."""
        self.relay.refuse_new()
        self.streams.close()

    async def stop(self) -> None:
        """End what still runs: requests, probes, engines."""
        self.refuse_new()
        self.reloads.close()
        self.relay.close()
        if self._prober is not None:
            self._prober.close()
        await self.hosts.close(ShuttingDown("The gateway is shutting down; send the request again"))
        if self._state_file is not None:
            self._state_file.close()

    def prepare(self, config: Config) -> Changeover:
        """Make what is needed to go on with ``config``; nothing changes. Raises ``ConfigError``, ``PluginError``.

        ``ShuttingDown`` for a gateway that was not started, or is being stopped.
        """
        self.relay.check_open()
        if self._prober is None:
            raise ShuttingDown("The gateway does not run")
        parts = Parts(self.registry, self.fleet, self.hosts, self.relay, self.entrance, self._prober, self.log)
        return Changeover(parts, self._means, config)

    def carry_out(self, changeover: Changeover) -> None:
        """Go on with what was prepared last."""
        changeover.carry_out()
        self._means = changeover.means

    def _application(self) -> Starlette:
        config, entrance = self.config, self.entrance
        live = Live(self.relay, self.hosts)
        routes: list[BaseRoute] = [
            *Models(entrance, self._aliases, int(time())).routes,
            *Operations(entrance, live, self._about).routes,
            *Lifecycle(entrance, self.hosts).routes,
            *Events(entrance, Broadcast(self.observers, live), self.streams).routes,
            *Logs(entrance, self.hosts, self.log.ring, self.streams).routes,
            UpstreamRoute(entrance, self._aliases, config.server.cors),
            *Reload(entrance, self.reloads.reload).routes,
        ]
        if config.telemetry.metrics:
            routes.append(Route("/metrics", Metrics(self.relay).page))
        for name in self.registry.types("routes"):
            routes += self.registry.create("routes", name)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            await self.start()
            yield
            await self.stop()

        return build_application(entrance, routes, cors=config.server.cors, lifespan=lifespan)

    def _aliases(self) -> Mapping[str, str]:
        return self.config.routing.aliases

    def _about(self) -> Mapping[str, str]:
        return {"version": version("enginehouse"), "strategy": self.config.routing.strategy}
