"""The composition root: the only module that knows everyone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, time
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route

from enginehouse.api.application import build_application
from enginehouse.api.entrance import Entrance
from enginehouse.api.keys import Keyring
from enginehouse.api.metrics import Metrics
from enginehouse.api.openai import Models
from enginehouse.api.operations import Operations
from enginehouse.config.decode import did_you_mean
from enginehouse.config.managed import managed_backends
from enginehouse.config.schema import Backend, Config, Matrix, Model, ModelCard, ScorerRef
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.domain.replica import Health, ReplicaState, replica_name
from enginehouse.engines.local import LocalLauncher
from enginehouse.engines.ports import Ports
from enginehouse.engines.prober import Prober
from enginehouse.engines.supervisor import Supervisor
from enginehouse.fleet.backend import Backend as Member
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.scorers import WeightedScorer
from enginehouse.interfaces.swappers import HostFacts, Swapper
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.router import Router
from enginehouse.scheduling.facts import swapper_parameters

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


def build_fleet(config: Config, *, assume: Health = Health.UNKNOWN) -> Fleet:
    """Every configured backend, remote and managed; ``assume`` is what to think of their health for a start."""
    fleet = Fleet(config.checks, monotonic)
    for name, model in config.models.items():
        if not model.launches:
            fleet.declare(name, _capabilities(model))
    for name, backend in config.backends.items():
        fleet.add(_remote(name, backend, assume))
    for name, model in config.models.items():
        for managed in managed_backends(name, model):
            fleet.add(_managed(managed, name, model, assume))
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
    """A whole gateway, built from its configuration; ``start`` and ``stop`` are the life of its background work."""

    def __init__(self, config: Config, registry: Registry) -> None:
        _check_parameters(config, registry)
        for key in _without_effect(config):
            _log.warning("%s has no effect in this version", key)
        self.config = config
        self.registry = registry
        self.fleet = build_fleet(config)
        observers = [_create(config, registry, "observer", t) for t in registry.types("observer")]
        router = build_router(config, registry)
        self.relay = Relay(router, self.fleet, max_retries=config.routing.max_retries, observers=observers)
        self.entrance = Entrance(self.relay, Keyring(config.auth.keys), max_body=config.server.max_body)
        self._drivers = {type: registry.create("driver", type, key=key) for type, key in _driver_types(config).items()}
        self._ports = Ports()
        self._supervisors = [
            self._supervisor(managed, name, model)
            for name, model in config.models.items()
            for managed in managed_backends(name, model)
        ]
        self._prober: Prober | None = None
        self._loading: set[asyncio.Task[None]] = set()
        self.application = self._application()

    async def start(self) -> None:
        """Begin to probe and to launch; returns when every remote backend was probed once, or that took too long."""
        self._prober = prober = Prober(self.fleet, self.config.checks)
        for name, backend in self.config.backends.items():
            self._connect(name, backend)
        for supervisor in self._supervisors:
            task = asyncio.create_task(_bring_up(supervisor))
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)
        await asyncio.wait([asyncio.ensure_future(prober.first_round())], timeout=self.config.checks.timeout)

    async def stop(self) -> None:
        """End what still runs: requests, probes, engines."""
        self.relay.close()
        if self._prober is not None:
            self._prober.close()
        await asyncio.gather(*(supervisor.stop() for supervisor in self._supervisors), return_exceptions=True)

    def _connect(self, name: str, backend: Backend) -> None:
        assert self._prober is not None
        upstream = self.relay.upstreams[name] = Upstream(name, backend, self.config.timeouts)
        self._prober.add(name, self._drivers[backend.driver], Client(upstream, self.config.checks.timeout))

    def _supervisor(self, name: str, model_name: str, model: Model) -> Supervisor:
        replica = replica_name(model_name, name)

        def on_state(state: ReplicaState) -> None:
            self.fleet.set_state(replica, state)
            if state is ReplicaState.READY and supervisor.address is not None:
                self._connect(name, Backend(url=supervisor.address, driver=model.driver, timeouts=model.timeouts))
                self.fleet.succeeded(name)
            elif self._prober is not None:
                self._prober.remove(name)
                self.fleet.gone(name, supervisor.problem or f"the engine is {state.value}")

        def connect(address: str) -> Client:
            return Client(Upstream(name, Backend(url=address), self.config.timeouts), self.config.checks.timeout)

        supervisor = Supervisor(
            name,
            model_name,
            model,
            driver=self._drivers[model.driver],
            launcher=self._launcher(model.host),
            ports=self._ports,
            connect=connect,
            on_state=on_state,
        )
        return supervisor

    def _launcher(self, host: str) -> Launcher:
        type = self.config.hosts[host].launcher if host in self.config.hosts else "local"
        if type == "local":
            return LocalLauncher(Path(mkdtemp(prefix="enginehouse-")))
        launcher: Launcher = _create(self.config, self.registry, "launcher", type, f"hosts.{host}.launcher")
        return launcher

    def _application(self) -> Starlette:
        config, entrance = self.config, self.entrance
        operations = Operations(entrance, strategy=config.routing.strategy, version=version("enginehouse"))
        routes: list[BaseRoute] = [
            *Models(entrance, config.routing.aliases, int(time())).routes,
            *operations.routes,
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


async def _bring_up(supervisor: Supervisor) -> None:
    with suppress(EnginehouseError):  # the supervisor has told of it
        await supervisor.start()


def _remote(name: str, backend: Backend, health: Health) -> Member:
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
        health=health,
    )


def _managed(name: str, model_name: str, model: Model, health: Health) -> Member:
    return Member(
        name=name,
        url="",
        driver=model.driver,
        priority=model.priority,
        role=model.role,
        host=model.host,
        models={model_name: _capabilities(model)},
        health=health,
    )


def _capabilities(card: ModelCard) -> Capabilities:
    return Capabilities(**{name: getattr(card, name) for name in Capabilities.__struct_fields__})


def _create(config: Config, registry: Registry, kind: str, type: str, key: str = "") -> Any:
    return registry.create(kind, type, config.plugins.parameters.get(type), key or f"plugins.{type}")


def _scorer(registry: Registry, ref: ScorerRef, key: str) -> WeightedScorer:
    return WeightedScorer(ref.name or ref.type, ref.weight, registry.create("scorer", ref.type, ref.parameters, key))


def _driver_types(config: Config) -> Mapping[str, str]:
    names = {backend.driver: f"backends.{name}.driver" for name, backend in config.backends.items()}
    return names | {model.driver: f"models.{name}.driver" for name, model in config.models.items() if model.launches}


def _without_effect(config: Config) -> Sequence[str]:
    """Keys that are set, and valid, and belong to parts of the gateway that are not built yet."""
    keys = {
        "telemetry.traces": config.telemetry.traces != "off",
        "rescheduling.enabled": config.rescheduling.enabled,
        "discovery": bool(config.discovery),
        "scheduling.groups": bool(config.scheduling.groups),
        "scheduling.matrix": config.scheduling.matrix != Matrix(),
    }
    return [key for key, is_set in keys.items() if is_set]


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
