"""Replaces the configuration of a running gateway, in one step of the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from enginehouse.api.doors.admission import Admission
from enginehouse.api.tokens import token_library
from enginehouse.app.build import (
    build_drivers,
    build_host_context,
    check_launch_lines,
    check_scheduling,
    renew_upstreams,
)
from enginehouse.app.build_fleet import build_fleet
from enginehouse.app.build_relay import change_relay
from enginehouse.app.build_router import build_router, needs_new_router, settle
from enginehouse.app.callers import Callers
from enginehouse.app.config_diff import diff_configs
from enginehouse.app.discovery.discovery import Discovery, check_discovery
from enginehouse.app.discovery.found_backends import Joined
from enginehouse.app.plugin_instances import check_parameters
from enginehouse.app.role_warnings import warn_of_roles
from enginehouse.app.scaling.scaling import Scaling, make_scaler
from enginehouse.config.aliases import Aliases
from enginehouse.config.managed import driver_of, hosts_of_model
from enginehouse.config.schema import Config, ModelSettings
from enginehouse.config.secret_variables import secret_values
from enginehouse.engines.followed_caches import CacheView, FollowedCaches, kv_events_of
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.launch_line import fingerprint, launch_line
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.engines.probing.prober import Prober
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.telemetry.access_log import AccessLog
from enginehouse.telemetry.logs import GatewayLog, configure_logs

_log = logging.getLogger(__name__)

_KEPT_KINDS = (
    "observer",
    "launcher",
    "scheduler",
    "driver",
    "routes",
    "discoverer",
    "protocol",
    "guard",
    "limit_store",
    "usage_store",
    "migrator",
    "rescheduling_policy",
)
"""Kinds of plugins whose instances live as long as the gateway."""


class GatewayParts(NamedTuple):
    """The parts of a gateway that its configuration concerns."""

    registry: Registry
    fleet: Fleet
    engines: ManagedEngines
    relay: Relay
    admission: Admission
    prober: Prober
    log: GatewayLog
    access_log: AccessLog
    discovery: Discovery
    caches: FollowedCaches
    callers: Callers
    scaling: Scaling


def _nothing() -> None:
    pass


class CurrentConfig:
    """The configuration in force. ``context`` is the hosts' view of it. ``on_change`` is called when another one is.

    ``version`` counts them, from 1.
    """

    def __init__(self, parts: GatewayParts, context: HostContext) -> None:
        self._parts = parts
        self.context = context
        self.version = 1
        self.on_change: Callable[[], None] = _nothing
        self._joined = Joined(context.config)

    @property
    def config(self) -> Config:
        return self.context.config

    @property
    def aliases(self) -> Aliases:
        """The aliases of the configuration in force."""
        return self._parts.relay.context.filters.aliases

    def prepare(self, new: Config) -> ConfigChange:
        """Make everything that ``new`` needs. Nothing changes yet.

        Raises ``ConfigError`` or ``PluginError`` for an unusable configuration, ``ShuttingDown`` in a gateway that is
        shutting down.
        """
        self._parts.relay.check_open()
        check_discovery(new, self._parts.registry)
        if new.auth.jwt is not None:
            token_library()
        make_scaler(new, self._parts.registry)
        joined = self._parts.discovery.found.joined_to(self._parts.scaling.sized(new))
        change = ConfigChange(self._parts, self.context, joined)
        for warning in change.warnings:
            _log.warning("%s", warning)
        return change

    def carry_out(self, change: ConfigChange) -> None:
        """Put in force what ``prepare`` returned last."""
        change.carry_out()
        self.context, self._joined = change.context, change.joined
        self._parts.scaling.reconfigure(change.context.config)
        self._parts.discovery.reconfigure(change.context.config)
        self.version += 1
        self.on_change()

    def rejoin(self) -> None:
        """Put the backends in force that discoverers have found and scalers want, and no longer those that are gone.

        Raises ``ConfigError`` or ``PluginError`` if that cannot be; then nothing has changed.
        """
        found = self._parts.discovery.found
        configured = self._parts.scaling.sized(self._joined.without_found(self.config))
        change = ConfigChange(self._parts, self.context, found.joined_to(configured))
        change.carry_out()
        self.context, self._joined = change.context, change.joined
        self._parts.scaling.reconfigure(self.config)
        self.version += 1
        self.on_change()
        if lines := "; ".join(change.diff.lines()):
            _log.info("Changed without a reload: %s", lines)


class ConfigChange:
    """A prepared change: holds everything that the configuration ``joined`` needs, while the old one stays in force.

    ``diff`` says what changes. ``context`` is the hosts' view of the new configuration; ``context.config`` keeps old
    values where a change needs a restart. ``joined`` has the backends that discoverers found.
    """

    def __init__(self, parts: GatewayParts, context: HostContext, joined: Joined) -> None:
        registry, old, relay = parts.registry, context.config, parts.relay.context
        check_parameters(joined.config, registry)
        new, self.warnings = settle(joined.config, registry)
        self.joined = joined
        drivers = build_drivers(new, registry, context.drivers, context.outside)
        check_launch_lines(new, drivers, registry)
        warn_of_roles(new, drivers, registry)
        launched = partial(_launched, {**context.drivers, **drivers})
        fixed = {*_KEPT_KINDS, *(type for kind in _KEPT_KINDS for type in registry.types(kind))}
        self.diff, config = diff_configs(old, new, launched, fixed)
        check_scheduling(config, registry)
        self._parts = parts
        self._old = context
        self._fleet = build_fleet(config, drivers=drivers)
        renewed = needs_new_router(old, config, registry)
        self._kv_events = kv_events_of(config, drivers)
        self._view = CacheView(parts.caches) if renewed else None
        self._router = relay.router
        if renewed:
            self._router = build_router(config, registry, relay.clock, self._view, relay.waiting_room.counts)
        self.context = build_host_context(
            config,
            registry,
            fleet=parts.fleet,
            upstreams=renew_upstreams(old, relay.upstreams, config, context.outside, drivers),
            drivers=drivers,
            observers=context.observers,
            outside=context.outside,
        )
        self._engines = parts.engines.prepare(self.context)

    def carry_out(self) -> None:
        """Put everything in force, in one step of the event loop. Streams continue, and so do unchanged engines."""
        parts, config, old = self._parts, self.context.config, self._old.config
        before = change_relay(
            parts.relay, parts.admission, config, self.context.drivers, self.context.upstreams, self._router
        )
        if self._view is not None:
            parts.caches.use(self._view)
        parts.callers.configure(config)
        parts.fleet.become(self._fleet)
        self._probe(before)
        parts.discovery.found.commit(self.joined)
        parts.discovery.drain()
        parts.engines.carry_out(self._engines, self.diff.models.relaunched, config.server.drain_timeout)
        for name, upstream in before.items():
            if self.context.upstreams.get(name) is not upstream:
                upstream.pool.close()
        if _log_settings(config) != _log_settings(old):
            configure_logs(config.telemetry, parts.log, secret_values(config))
        parts.caches.follow(self._kv_events)
        parts.access_log.json = config.telemetry.log_format == "json"

    def _probe(self, before: Mapping[str, Upstream]) -> None:
        """Probe the remote backends of the new configuration by its settings."""
        prober, (config, old) = self._parts.prober, (self.context.config, self._old.config)
        prober.reconfigure(config.checks)
        for name in old.backends.keys() - config.backends.keys():
            prober.remove(name)
        for name, backend in config.backends.items():
            upstream, driver = self.context.upstreams[name], self.context.drivers[backend.driver]
            same = before.get(name) is upstream and old.backends[name].driver == backend.driver
            if not same or config.checks != old.checks:
                report = partial(self._parts.engines.remote.report, name)
                models = partial(self._parts.engines.discover, name)
                client = Client(upstream, config.checks.timeout)
                prober.add(name, driver, client, on_concurrency=report, on_models=models)


def _log_settings(config: Config) -> tuple[object, ...]:
    return config.telemetry.log_format, config.telemetry.log_level, secret_values(config)


def _launched(drivers: Mapping[str, DriverSupport], name: str, model: ModelSettings) -> str:
    """A text that is the same for the same launch of a model's engine, on any port. Raises ``ConfigError``."""
    line = launch_line(name, model, drivers[driver_of(model)].launch, port=0)
    return f"{hosts_of_model(model)} {model.gpus} {fingerprint(line)}"
