"""From the configuration to the parts of the house that it describes, made of registered plugins."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from enginehouse.config.decode import did_you_mean
from enginehouse.config.managed import driver_of, managed_backends
from enginehouse.config.schema import Backend, Config, Model, ModelCard, ScorerRef, Timeouts
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.replica import Health, ReplicaState, replica_name
from enginehouse.engines.local import LocalLauncher
from enginehouse.engines.means import Means
from enginehouse.fleet.backend import Backend as Member
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.scorers import WeightedScorer
from enginehouse.interfaces.swappers import HostFacts, Swapper
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.router import Router
from enginehouse.scheduling.facts import host_facts, host_names, swapper_parameters
from enginehouse.telemetry.listeners import Listeners, Observers, tell

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
    strategy = create(config, registry, "strategy", strategy_type, "routing.strategy")
    strategy.use([_scorer(registry, ref, f"routing.scorers[{n}]") for n, ref in enumerate(scorers)])
    filters = registry.types("filter") if routing.filters is None else routing.filters
    return Router(
        extractors=[(t, create(config, registry, "extractor", t)) for t in registry.types("extractor")],
        filters=[(t, create(config, registry, "filter", t, "routing.filters")) for t in filters],
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


def build_upstreams(config: Config) -> dict[str, Upstream]:
    """Every backend; those that are launched are nowhere until they run."""
    return {name: Upstream(name, settings, config.timeouts) for name, _, settings in _reached(config)}


def renew_upstreams(before: Config, upstreams: Mapping[str, Upstream], config: Config) -> dict[str, Upstream]:
    """Every backend of ``config``; those of ``upstreams`` that are reached as they were ``before`` stay in use."""
    places = {name: place for name, place, _ in _reached(before)}
    return {
        name: upstreams[name]
        if places.get(name) == place and upstreams[name].is_for(settings)
        else Upstream(name, settings, config.timeouts)
        for name, place, settings in _reached(config)
    }


def time_limits(config: Config) -> dict[str, Timeouts]:
    """Those of every backend."""
    return {name: settings.timeouts or config.timeouts for name, _, settings in _reached(config)}


def build_means(
    config: Config,
    registry: Registry,
    *,
    fleet: Fleet,
    upstreams: dict[str, Upstream],
    drivers: Mapping[str, Driver],
    observers: Observers,
) -> Means:
    """What hosts work with under ``config``."""
    scheduler = config.scheduling.scheduler
    return Means(
        config=config,
        fleet=fleet,
        upstreams=upstreams,
        drivers=drivers,
        observers=observers,
        make_scheduler=partial(create, config, registry, "scheduler", scheduler, "scheduling.scheduler"),
        make_swapper=partial(build_swapper, config, registry),
        make_launcher=partial(_launcher, config, registry),
    )


def build_drivers(config: Config, registry: Registry, before: Mapping[str, Driver]) -> dict[str, Driver]:
    """Every driver that is needed, by type; those that were there ``before`` stay in use."""
    return {
        type: before[type] if type in before else registry.create("driver", type, key=key)
        for type, key in _driver_types(config).items()
    }


def create(config: Config, registry: Registry, kind: str, type: str, key: str = "") -> Any:
    """An instance of ``type`` with the parameters that ``[plugins]`` has for it; ``key`` is where it was named."""
    return registry.create(kind, type, config.plugins.parameters.get(type), key or f"plugins.{type}")


def check_scheduling(config: Config, registry: Registry) -> None:
    """Have the rules read now, not when the gateway has begun to start."""
    create(config, registry, "scheduler", config.scheduling.scheduler, "scheduling.scheduler")
    for host in host_names(config):
        build_swapper(config, registry, host_facts(config, host))


def check_parameters(config: Config, registry: Registry) -> None:
    """Parameters for a plugin that is not there would be ignored in silence."""
    known = {entry.type for entry in registry.all()}
    for name in config.plugins.parameters:
        if name not in known:
            raise ConfigError(
                f"no plugin registers a type '{name}'",
                key=f"plugins.{name}",
                remedy=did_you_mean(name, sorted(known)) or "install the plugin or remove the table",
            )


def without_effect(config: Config) -> Sequence[str]:
    """Keys that are set, and valid, and belong to parts of the gateway that are not built yet."""
    keys = {
        "telemetry.traces": config.telemetry.traces != "off",
        "rescheduling.enabled": config.rescheduling.enabled,
        "discovery": bool(config.discovery),
    }
    return [key for key, is_set in keys.items() if is_set]


def _reached(config: Config) -> Iterator[tuple[str, str, Backend]]:
    """Every backend with the place where it is launched, if it is, and how it is reached."""
    for name, backend in config.backends.items():
        yield name, "", backend
    for name, model in config.models.items():
        for managed in managed_backends(name, model):
            yield managed, f"{name}@{model.host}", Backend(url="", timeouts=model.timeouts)


def _launcher(config: Config, registry: Registry, type: str, host: str, logs: Path) -> Launcher:
    if type == "local":
        return LocalLauncher(logs)
    launcher: Launcher = create(config, registry, "launcher", type, f"hosts.{host}.launcher")
    return launcher


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


def _scorer(registry: Registry, ref: ScorerRef, key: str) -> WeightedScorer:
    return WeightedScorer(ref.name or ref.type, ref.weight, registry.create("scorer", ref.type, ref.parameters, key))


def _driver_types(config: Config) -> Mapping[str, str]:
    names = {backend.driver: f"backends.{name}.driver" for name, backend in config.backends.items()}
    return names | {
        driver_of(model): f"models.{name}.driver" for name, model in config.models.items() if model.launches
    }
