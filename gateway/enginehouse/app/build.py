"""Makes the parts of a gateway from its configuration and the registered plugins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.aio.write_batch import WriteBatch
from enginehouse.app.plugin_instances import create, create_installed, identity, prepare
from enginehouse.config.parameters import plugin_table
from enginehouse.config.schema import (
    BackendModelSettings,
    BackendSettings,
    CapabilitySettings,
    Config,
    ModelSettings,
)
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.replica import ASSUMED_LOAD_S, Health, ReplicaState, replica_name
from enginehouse.engines.guards import guarded_driver, guarded_launcher
from enginehouse.engines.pulled_models import PulledModels
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.http.admission import INFERENCE_PATHS, Admission, Authentication, BodyMemory
from enginehouse.http.cross_origin import CrossOriginProtection
from enginehouse.http.inbound import DateLine
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.swappers import HostFacts, Swapper
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.guarded_swapper import GuardedSwapper
from enginehouse.scheduling.scheduling_rules import swapper_parameters
from enginehouse.telemetry.observers import Callbacks, Observers, notify

_log = logging.getLogger(__name__)


def build_swapper(config: Config, registry: Registry, host: HostFacts) -> GuardedSwapper:
    """The configured swapper, guarded and prepared for ``host``.

    Raises ``ConfigError`` for rules that do not fit the host, and ``PluginError`` if the swapper fails.
    """
    type = config.scheduling.swapper
    table = plugin_table(config.plugins, "swapper", type).key
    swapper: Swapper = registry.create("swapper", type, swapper_parameters(config), "scheduling.swapper", table)
    guarded = GuardedSwapper(swapper, type=type, plugin=registry.get("swapper", type).entry_point)
    prepare(registry, "swapper", type, partial(guarded.prepare, host))
    return guarded


def renew_upstreams(
    before: Config,
    upstreams: Mapping[str, Upstream],
    config: Config,
    outside: Outside,
    drivers: Mapping[str, DriverSupport],
) -> dict[str, Upstream]:
    """Every backend of ``config``; those of ``upstreams`` that are reached as they were ``before`` stay in use.

    Launched ones have no address until they run. One that gets another driver may go on running, at its address.
    """
    places = {name: place for name, place, _ in reached(before)}

    def renewed(name: str, place: str, settings: BackendSettings) -> Upstream:
        earlier = upstreams.get(name) if places.get(name) == place else None
        if earlier is not None and earlier.is_for(settings):
            return earlier
        most_idle = drivers[settings.driver].driver.idle_connections
        upstream = Upstream(name, settings, config.timeouts, outside, most_idle=most_idle)
        if earlier is not None and not settings.url:
            upstream.locate(earlier.pool.origin.url)
        return upstream

    return {name: renewed(name, place, settings) for name, place, settings in reached(config)}


def build_admission(config: Config, relay: Relay, authentication: Authentication) -> Admission:
    """The check of every request on its way to ``relay``."""
    return Admission(
        relay,
        authentication,
        CrossOriginProtection(config.server),
        max_body=config.server.max_body,
        body_memory=BodyMemory(config.server.max_body_memory),
        paths=(*INFERENCE_PATHS, *(path for path in relay.context.protocols if "{" not in path)),
        writes=WriteBatch(),
        date=DateLine(relay.context.clock.epoch).now,
        client_timeout=config.timeouts.client,
    )


def build_drivers(
    config: Config, registry: Registry, before: Mapping[str, DriverSupport], outside: Outside
) -> dict[str, DriverSupport]:
    """Every driver that ``config`` uses, by type, guarded. Those of ``before`` stay in use."""
    return {
        type: before[type] if type in before else build_driver(config, registry, type, key, outside)
        for type, key in driver_types(config).items()
    }


def build_driver(config: Config, registry: Registry, type: str, key: str, outside: Outside) -> DriverSupport:
    """The driver of ``type``, guarded, which the configuration key ``key`` names."""
    driver: Driver = create(config, registry, "driver", type, key)
    return outside.driver(guarded_driver(identity(registry, "driver", type), driver))


def driver_types(config: Config) -> Mapping[str, str]:
    """The types of drivers that ``config`` uses, each with a key that names it."""
    names = {backend.driver: f"backends.{name}.driver" for name, backend in config.backends.items()}
    return names | {
        model.engine_driver: f"models.{name}.driver" for name, model in config.models.items() if model.launches
    }


def build_sources(config: Config, registry: Registry) -> PulledModels:
    """The folder of downloaded models, and the sources of more."""
    return PulledModels(config.pull, [each for _, each in create_installed(config, registry, "model_source")])


def reached(config: Config) -> Iterator[tuple[str, str, BackendSettings]]:
    """Every backend, with the host of a launched one, and with the address and settings to reach it."""
    for name, backend in config.backends.items():
        yield name, "", backend
    for name, model in config.models.items():
        for managed, host in model.backends(name).items():
            yield (
                managed,
                f"{name}@{host}",
                BackendSettings(url="", driver=model.engine_driver, timeouts=model.timeouts),
            )


def build_launcher(config: Config, registry: Registry, type: str, host: str) -> Launcher:
    """The launcher of ``host``, guarded. Raises ``ConfigError`` or ``PluginError``."""
    launcher: Launcher = create(config, registry, "launcher", type, f"hosts.{host}.launcher")
    return guarded_launcher(identity(registry, "launcher", type), launcher)


def build_fleet(
    config: Config,
    observers: Observers | None = None,
    clock: Callable[[], float] = SYSTEM_CLOCK.epoch,
    drivers: Mapping[str, DriverSupport] | None = None,
) -> Fleet:
    """The fleet of all configured backends. Remote ones have not been probed; managed ones are stopped.

    ``drivers`` say which backends load models themselves; by default, none does.
    """
    loaders = {type for type, driver in (drivers or {}).items() if driver.loading is not None}
    observers = observers or Observers()
    fleet = Fleet(
        config.checks,
        clock,
        on_health=partial(_report_health, observers.callbacks("backend_health")),
        on_hung=partial(notify, observers.callbacks("hung")),
        on_draining=partial(notify, observers.callbacks("backend_draining")),
        on_replicas=partial(notify, observers.callbacks("replicas_changed")),
    )
    fleet.defer()
    for name, model in config.models.items():
        if not model.launches:
            fleet.declare(name, _capabilities(model))
    for name, backend in config.backends.items():
        fleet.add(_remote(name, backend, backend.driver in loaders))
        fleet.load(name).slots = 0 if backend.driver in loaders else backend.concurrency
    for name, model in config.models.items():
        for managed, host in model.backends(name).items():
            fleet.add(_managed(managed, name, model, host))
            fleet.load(managed).slots = model.concurrency
            fleet.set_state(replica_name(name, managed), ReplicaState.STOPPED, ASSUMED_LOAD_S)
    fleet.publish_all()
    return fleet


def _report_health(callbacks: Callbacks, name: str, health: Health, why: str) -> None:
    if health is Health.UNHEALTHY:
        _log.warning("Backend '%s' is unhealthy: %s", name, why or "no reason was given")
    else:
        _log.info("Backend '%s' is %s", name, health.value)
    notify(callbacks, name, health)


def _remote(name: str, backend: BackendSettings, loads_models: bool) -> BackendInfo:
    declared = backend.models
    if isinstance(declared, list):
        declared = {model: BackendModelSettings() for model in declared}
    return _info(
        name,
        backend,
        url=backend.url,
        driver=backend.driver,
        host=backend.host,
        models=None if declared is None else {model: _capabilities(card) for model, card in declared.items()},
        names=_names_there(name, backend, loads_models),
        loads_models=loads_models,
    )


def _names_there(name: str, backend: BackendSettings, loads_models: bool) -> Mapping[str, str]:
    cards = backend.models if isinstance(backend.models, dict) else {}
    names = {model: card.upstream for model, card in cards.items() if card.upstream not in ("", model)}
    if names and loads_models:
        model, upstream = next(iter(names.items()))
        raise ConfigError(
            "this server loads models by its own names for them",
            key=f"backends.{name}.models.{model}.upstream",
            remedy=f'name the model \'{upstream}\', and put "{model}" = "{upstream}" under [routing.aliases]',
        )
    return names


def _managed(name: str, model_name: str, model: ModelSettings, host: str) -> BackendInfo:
    models = {model_name: _capabilities(model)}
    return _info(name, model, url="", driver=model.engine_driver, host=host, models=models, health=Health.HEALTHY)


def _info(name: str, served: BackendSettings | ModelSettings, **own: Any) -> BackendInfo:
    """A backend, with what backends and launched models say of themselves alike."""
    return BackendInfo(
        name=name,
        priority=served.priority,
        weight=served.weight,
        role=served.role,
        zone=served.zone,
        tier=served.tier,
        **own,
    )


def _capabilities(card: CapabilitySettings) -> Capabilities:
    return Capabilities(**{name: getattr(card, name) for name in Capabilities.__struct_fields__})
