"""The composition root: the only module that knows everyone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import Any

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
from enginehouse.api.upstream import UpstreamRoute
from enginehouse.config.decode import did_you_mean
from enginehouse.config.managed import driver_of, managed_backends
from enginehouse.config.schema import Backend, Config, Model, ModelCard, ScorerRef
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import ConfigError, ShuttingDown
from enginehouse.domain.replica import Health, ReplicaState, replica_name
from enginehouse.engines.engine_host import Means
from enginehouse.engines.hosts import Hosts
from enginehouse.engines.local import LocalLauncher
from enginehouse.engines.prober import Prober
from enginehouse.engines.state_file import StateFile, state_folder
from enginehouse.fleet.backend import Backend as Member
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.schedulers import Scheduler
from enginehouse.interfaces.scorers import WeightedScorer
from enginehouse.interfaces.swappers import HostFacts, Swapper
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.relay.waiting_room import WaitingRoom
from enginehouse.routing.body_filters import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.facts import host_facts, host_names, swapper_parameters
from enginehouse.telemetry.broadcast import Broadcast
from enginehouse.telemetry.listeners import Listeners, Observers, tell
from enginehouse.telemetry.logs import OwnLog

_log = logging.getLogger(__name__)


def build_router(config: Config, registry: Registry) -> Router:
    """The router that ``[routing]`` describes, made of registered plugins."""
    routing = config.routing
    strategy_type = routing.strategy
    if strategy_type not in registry.types("strategy"):
        hint = did_you_mean(strategy_type, list(registry.types("strategy")))
        _log.warning("routing.strategy: there is no strategy '%s', so 'smart' is used. %s", strategy_type, hint)
        strategy_type = "smart"
    scorers = routing.scorers
    if strategy_type == "smart" or not scorers:
        weights = routing.weights
        scorers = [
            ScorerRef(type=name, weight=w) for name in weights.__struct_fields__ if (w := getattr(weights, name))
        ]
    strategy = _create(config, registry, "strategy", strategy_type, "routing.strategy")
    strategy.use([_scorer(registry, ref, f"routing.scorers[{n}]") for n, ref in enumerate(scorers)])
    filters = registry.types("filter") if routing.filters is None else routing.filters
    return Router(
        extractors=[(t, _create(config, registry, "extractor", t)) for t in registry.types("extractor")],
        filters=[(t, _create(config, registry, "filter", t, "routing.filters")) for t in filters],
        strategy=(strategy_type, strategy),
        aliases=routing.aliases,
        fallbacks=routing.fallbacks,
    )


def build_fleet(config: Config, observers: Observers | None = None) -> Fleet:
    """Every configured backend: remote ones, of which nothing is known, and managed ones, of which none runs."""
    observers = observers or Observers()
    fleet = Fleet(
        config.checks,
        time,
        on_health=partial(_tell_of_health, observers.listeners("backend_health")),
        on_replicas=partial(tell, observers.listeners("replicas_changed")),
    )
    for name, model in config.models.items():
        if not model.launches:
            fleet.declare(name, _capabilities(model))
    for name, backend in config.backends.items():
        fleet.add(_remote(name, backend))
    for name, model in config.models.items():
        for managed in managed_backends(name, model):
            fleet.add(_managed(managed, name, model))
            fleet.set_state(replica_name(name, managed), ReplicaState.STOPPED)
    return fleet


def build_swapper(config: Config, registry: Registry, host: HostFacts) -> Swapper:
    """The swapper that ``[scheduling]`` describes, made for ``host``. Raises ``ConfigError`` for its rules."""
    swapper: Swapper = registry.create(
        "swapper", config.scheduling.swapper, swapper_parameters(config), "scheduling.swapper"
    )
    swapper.prepare(host)
    return swapper


class Gateway:
    """A whole gateway, built from its configuration; ``start`` and ``stop`` are the life of its background work.

    ``log``: where its own log is kept.
    """

    def __init__(self, config: Config, registry: Registry, log: OwnLog | None = None) -> None:
        _check_parameters(config, registry)
        for key in _without_effect(config):
            _log.warning("%s has no effect in this version", key)
        self.config = config
        self.registry = registry
        self.log = log or OwnLog()
        self.streams = EndlessStreams()
        self.observers = Observers(_create(config, registry, "observer", t) for t in registry.types("observer"))
        self.fleet = build_fleet(config, self.observers)
        drivers = {type: registry.create("driver", type, key=key) for type, key in _driver_types(config).items()}
        self._drivers: Mapping[str, Driver] = drivers
        upstreams = _upstreams(config)
        self.hosts = Hosts(
            Means(
                config=config,
                fleet=self.fleet,
                upstreams=upstreams,
                drivers=drivers,
                observers=self.observers,
                make_scheduler=self._scheduler,
                make_swapper=partial(build_swapper, config, registry),
                make_launcher=self._launcher,
            )
        )
        _check_scheduling(config, registry)
        self.relay = Relay(
            build_router(config, registry),
            self.fleet,
            upstreams,
            max_retries=config.routing.max_retries,
            filters=FiltersByName(config.models, config.routing.aliases),
            hosts=self.hosts.by_backend,
            waiting_room=WaitingRoom(config.models, config.scheduling, self.hosts.by_backend),
            observers=self.observers,
        )
        self.entrance = Entrance(self.relay, Keyring(config.auth.keys), max_body=config.server.max_body)
        self._prober: Prober | None = None
        self._state_file: StateFile | None = None
        self.application = self._application()

    async def start(self) -> None:
        """Begin to probe and take over engines that still run.

        Returns when that is done and every remote backend was probed once, or that took too long.
        """
        self.log.open()
        checks = self.config.checks
        self._prober = prober = Prober(self.fleet, checks)
        for name, backend in self.config.backends.items():
            prober.add(name, self._drivers[backend.driver], Client(self.relay.upstreams[name], checks.timeout))
        first_round = asyncio.ensure_future(prober.first_round())
        server = self.config.server
        self._state_file = StateFile(state_folder(server.host, server.port))
        await self.hosts.open(self._state_file, prober)
        await asyncio.wait([first_round], timeout=checks.timeout)

    def refuse_new(self) -> None:
        """Take no more requests. Live ones may end; what would not end by itself does so at once."""
        self.relay.refuse_new()
        self.streams.close()

    async def stop(self) -> None:
        """End what still runs: requests, probes, engines."""
        self.refuse_new()
        self.relay.close()
        if self._prober is not None:
            self._prober.close()
        await self.hosts.close(ShuttingDown("The gateway is shutting down; send the request again"))
        if self._state_file is not None:
            self._state_file.close()

    def _scheduler(self) -> Scheduler:
        type = self.config.scheduling.scheduler
        scheduler: Scheduler = _create(self.config, self.registry, "scheduler", type, "scheduling.scheduler")
        return scheduler

    def _launcher(self, host: str, logs: Path) -> Launcher:
        type = self.config.hosts[host].launcher if host in self.config.hosts else "local"
        if type == "local":
            return LocalLauncher(logs)
        launcher: Launcher = _create(self.config, self.registry, "launcher", type, f"hosts.{host}.launcher")
        return launcher

    def _application(self) -> Starlette:
        config, entrance = self.config, self.entrance
        about = {"version": version("enginehouse"), "strategy": config.routing.strategy}
        live = Live(self.relay, self.hosts)
        routes: list[BaseRoute] = [
            *Models(entrance, config.routing.aliases, int(time())).routes,
            *Operations(entrance, live, about).routes,
            *Lifecycle(entrance, self.hosts).routes,
            *Events(entrance, Broadcast(self.observers, live), self.streams).routes,
            *Logs(entrance, self.hosts, self.log.ring, self.streams).routes,
            UpstreamRoute(entrance, config.routing.aliases, config.server.cors),
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


def _upstreams(config: Config) -> dict[str, Upstream]:
    """Every backend; those that are launched are nowhere until they run."""
    upstreams = {name: Upstream(name, backend, config.timeouts) for name, backend in config.backends.items()}
    for name, model in config.models.items():
        for managed in managed_backends(name, model):
            upstreams[managed] = Upstream(managed, Backend(url="", timeouts=model.timeouts), config.timeouts)
    return upstreams


def _tell_of_health(told: Listeners, name: str, health: Health) -> None:
    _log.log(logging.WARNING if health is Health.UNHEALTHY else logging.INFO, "Backend '%s' is %s", name, health.value)
    tell(told, name, health)


def _remote(name: str, backend: Backend) -> Member:
    declared = backend.models
    if isinstance(declared, list):
        declared = {model: ModelCard() for model in declared}
    return Member(
        name=name,
        url=backend.url,
        driver=backend.driver,
        priority=backend.priority,
        role=backend.role,
        host=backend.host,
        models=None if declared is None else {model: _capabilities(card) for model, card in declared.items()},
    )


def _managed(name: str, model_name: str, model: Model) -> Member:
    return Member(
        name=name,
        url="",
        driver=driver_of(model),
        priority=model.priority,
        role=model.role,
        host=model.host,
        models={model_name: _capabilities(model)},
        health=Health.HEALTHY,
    )


def _capabilities(card: ModelCard) -> Capabilities:
    return Capabilities(**{name: getattr(card, name) for name in Capabilities.__struct_fields__})


def _create(config: Config, registry: Registry, kind: str, type: str, key: str = "") -> Any:
    return registry.create(kind, type, config.plugins.parameters.get(type), key or f"plugins.{type}")


def _scorer(registry: Registry, ref: ScorerRef, key: str) -> WeightedScorer:
    return WeightedScorer(ref.name or ref.type, ref.weight, registry.create("scorer", ref.type, ref.parameters, key))


def _driver_types(config: Config) -> Mapping[str, str]:
    names = {backend.driver: f"backends.{name}.driver" for name, backend in config.backends.items()}
    return names | {
        driver_of(model): f"models.{name}.driver" for name, model in config.models.items() if model.launches
    }


def _without_effect(config: Config) -> Sequence[str]:
    """Keys that are set, and valid, and belong to parts of the gateway that are not built yet."""
    keys = {
        "telemetry.traces": config.telemetry.traces != "off",
        "rescheduling.enabled": config.rescheduling.enabled,
        "discovery": bool(config.discovery),
    }
    return [key for key, is_set in keys.items() if is_set]


def _check_scheduling(config: Config, registry: Registry) -> None:
    """Have the rules read now, not when the gateway has begun to start."""
    _create(config, registry, "scheduler", config.scheduling.scheduler, "scheduling.scheduler")
    for host in host_names(config):
        build_swapper(config, registry, host_facts(config, host))


def _check_parameters(config: Config, registry: Registry) -> None:
    """Parameters for a plugin that is not there would be ignored in silence."""
    known = {entry.type for entry in registry.all()}
    for name in config.plugins.parameters:
        if name not in known:
            raise ConfigError(
                f"no plugin registers a type '{name}'",
                key=f"plugins.{name}",
                remedy=did_you_mean(name, sorted(known)) or "install the plugin or remove the table",
            )
