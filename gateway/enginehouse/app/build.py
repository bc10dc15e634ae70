"""Makes the parts of a gateway from its configuration and the registered plugins."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.write_batch import WriteBatch
from enginehouse.api.admission import INFERENCE_PATHS, Admission, Authentication, BodyMemory
from enginehouse.api.cross_origin import CrossOriginProtection
from enginehouse.app.plugin_instances import create, create_installed, identity, prepare
from enginehouse.config.parameters import plugin_table
from enginehouse.config.schema import (
    BackendSettings,
    Config,
    HostSettings,
    TimeoutSettings,
)
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import ConfigError, EnginehouseError, PullFailed
from enginehouse.domain.foreign import describe
from enginehouse.engines.guards import guarded_driver, guarded_launcher, unguarded
from enginehouse.engines.host_context import HostContext, check_placement
from enginehouse.engines.launch_line import launch_line, launch_spec
from enginehouse.engines.pulled_models import PulledModels
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
from enginehouse.scheduling.scheduling_rules import check_preloads, host_facts, host_names, swapper_parameters

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


def time_limits(config: Config) -> dict[str, TimeoutSettings]:
    """The time limits of every backend, by its name."""
    return {name: settings.timeouts or config.timeouts for name, _, settings in reached(config)}


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
        type: before[type] if type in before else outside.driver(_driver(config, registry, type, key))
        for type, key in _driver_types(config).items()
    }


def check_launch_lines(config: Config, drivers: Mapping[str, DriverSupport], registry: Registry) -> None:
    """Make the launch line of every model, on no port. Raises ``ConfigError``, or ``PluginError`` if a driver fails."""
    check_sources(config, registry)
    for name, model in config.models.items():
        if not model.launches:
            continue
        type = model.engine_driver
        try:
            launch_line(name, model, unguarded(drivers[type]).launch, port=0)
            for host in model.hosts:
                launcher = build_launcher(config, registry, config.host_settings(host).launcher, host)
                check_placement(config, name, host, launcher)
        except EnginehouseError:
            raise
        except (Exception, SystemExit) as error:
            problem = f"the driver '{type}' has no launch line for models.{name}:"
            raise registry.get("driver", type).failure(problem, error) from error
        launch_line(name, model, drivers[type].launch, port=0)  # the guard checks the driver's answers


async def warn_of_missing(context: HostContext) -> None:
    """Log why engines could not be launched on this machine, with remedies: a program or a file is missing.

    It may take long. The configuration must have been checked.
    """
    for name, model in context.config.models.items():
        type = HostSettings().launcher
        here = next((host for host in model.hosts if context.config.host_settings(host).launcher == type), None)
        if not model.launches or here is None:
            continue
        driver = unguarded(context.drivers[model.engine_driver]).launch
        try:
            line = launch_line(name, model, driver, port=0)
            if why := await context.make_launcher(type, here).why_not(line, ()):
                remedy = f" ({driver.how_to_install})" if driver.how_to_install else ""
                _log.warning("models.%s: %s%s", name, why, remedy)
            if model.command or model.source:
                continue
            if problem := await run_slowly(driver.why_not, launch_spec(name, model, driver)):
                _log.warning("models.%s.path: %s", name, problem)
        except Exception as error:
            text = "models.%s: its driver cannot tell whether the engine may start: %s"
            _log.warning(text, name, describe(error))


def check_sources(config: Config, registry: Registry) -> None:
    """Raise ``ConfigError`` for a model whose ``source`` no installed plugin downloads from: no load could succeed."""
    sources: PulledModels | None = None
    for name, model in config.models.items():
        if model.source:
            sources = sources or build_sources(config, registry)
            try:
                sources.check(model.source)
            except PullFailed as error:
                key = dotted(("models", name, "source"))
                raise ConfigError("no plugin downloads from there", key=key, remedy=error.message) from None


def build_sources(config: Config, registry: Registry) -> PulledModels:
    """The folder of downloaded models, and the sources of more."""
    return PulledModels(config.pull, [each for _, each in create_installed(config, registry, "model_source")])


def check_scheduling(config: Config, registry: Registry) -> None:
    """Check schedulers' parameters and swappers' rules now, before the gateway starts."""
    create(config, registry, "scheduler", config.scheduling.scheduler, "scheduling.scheduler")
    for host in host_names(config):
        facts = host_facts(config, host)
        check_preloads(config, facts, build_swapper(config, registry, facts))


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


def _driver(config: Config, registry: Registry, type: str, key: str) -> DriverSupport:
    driver: Driver = create(config, registry, "driver", type, key)
    return guarded_driver(identity(registry, "driver", type), driver)


def build_launcher(config: Config, registry: Registry, type: str, host: str) -> Launcher:
    """The launcher of ``host``, guarded. Raises ``ConfigError`` or ``PluginError``."""
    launcher: Launcher = create(config, registry, "launcher", type, f"hosts.{host}.launcher")
    return guarded_launcher(identity(registry, "launcher", type), launcher)


def _driver_types(config: Config) -> Mapping[str, str]:
    names = {backend.driver: f"backends.{name}.driver" for name, backend in config.backends.items()}
    return names | {
        model.engine_driver: f"models.{name}.driver" for name, model in config.models.items() if model.launches
    }
