"""From one configuration to another, in one step of the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from enginehouse.api.entrance import Entrance
from enginehouse.app.build import (
    build_drivers,
    build_fleet,
    build_means,
    build_router,
    check_parameters,
    check_scheduling,
    renew_upstreams,
    time_limits,
)
from enginehouse.app.plan import differences, make_plan
from enginehouse.config.managed import driver_of
from enginehouse.config.schema import Config, Model
from enginehouse.engines.hosts import Hosts
from enginehouse.engines.launch_line import fingerprint, launch_line
from enginehouse.engines.means import Means
from enginehouse.engines.prober import Prober
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.drivers import Driver
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body_filters import FiltersByName
from enginehouse.telemetry.logs import OwnLog, configure_logs

_KEPT_KINDS = ("observer", "launcher", "scheduler", "discoverer", "migrator", "rescheduling_policy")
"""Kinds of plugins whose instances live as long as the gateway."""
_ROUTING_KINDS = ("extractor", "filter", "strategy")


class Parts(NamedTuple):
    """The parts of a running gateway that a change of its configuration concerns."""

    registry: Registry
    fleet: Fleet
    hosts: Hosts
    relay: Relay
    entrance: Entrance
    prober: Prober
    log: OwnLog


class Changeover:
    """Everything that the configuration ``new`` needs, made and ready, while the gateway goes on as it is.

    Making one raises ``ConfigError`` or ``PluginError`` if anything of it cannot be put in force.
    ``plan`` is what changes, ``means`` what hosts work with then, and ``means.config`` what is in force then.
    """

    def __init__(self, parts: Parts, means: Means, new: Config) -> None:
        registry, old = parts.registry, means.config
        check_parameters(new, registry)
        drivers = build_drivers(new, registry, means.drivers)
        launched = partial(_launched, {**means.drivers, **drivers})
        fixed = {type for kind in _KEPT_KINDS for type in registry.types(kind)}
        self.plan, config = make_plan(old, new, launched, fixed)
        check_scheduling(config, registry)
        self._parts = parts
        self._old = means
        self._fleet = build_fleet(config)
        self._router = build_router(config, registry) if _routes_anew(old, config, registry) else parts.relay.router
        self.means = build_means(
            config,
            registry,
            fleet=parts.fleet,
            upstreams=renew_upstreams(old, parts.relay.upstreams, config),
            drivers=drivers,
            observers=means.observers,
        )
        self._hosts = parts.hosts.prepare(self.means)

    def carry_out(self) -> None:
        """Put everything in place, in one step of the event loop. Streams go on, and so do engines that may stay."""
        parts, config, old = self._parts, self.means.config, self._old.config
        parts.entrance.keyring.become(config.auth.keys)
        parts.entrance.max_body = config.server.max_body
        parts.relay.router = self._router
        parts.relay.filters = FiltersByName(config.models, config.routing.aliases)
        parts.relay.waiting_room.configure(config.models, config.scheduling)
        parts.relay.max_retries = config.routing.max_retries
        before, parts.relay.upstreams = parts.relay.upstreams, self.means.upstreams
        for name, limits in time_limits(config).items():
            self.means.upstreams[name].timeouts = limits
        parts.fleet.become(self._fleet)
        self._probe(before)
        parts.hosts.change(self._hosts, self.plan.models.relaunched, config.server.drain_timeout)
        for name, upstream in before.items():
            if self.means.upstreams.get(name) is not upstream:
                upstream.pool.close()
        if (config.telemetry.log_format, config.telemetry.log_level) != (
            old.telemetry.log_format,
            old.telemetry.log_level,
        ):
            configure_logs(config.telemetry, parts.log)

    def _probe(self, before: Mapping[str, Upstream]) -> None:
        """Probe the remote backends that there are now, by their settings of now."""
        prober, (config, old) = self._parts.prober, (self.means.config, self._old.config)
        prober.judge_by(config.checks)
        for name in old.backends.keys() - config.backends.keys():
            prober.remove(name)
        for name, backend in config.backends.items():
            upstream, driver = self.means.upstreams[name], self.means.drivers[backend.driver]
            same = before.get(name) is upstream and old.backends[name].driver == backend.driver
            if not same or config.checks != old.checks:
                prober.add(name, driver, Client(upstream, config.checks.timeout))


def _launched(drivers: Mapping[str, Driver], name: str, model: Model) -> str:
    """How the engine of a model is launched, whatever its port. Raises ``ConfigError``."""
    return f"{model.host} {fingerprint(launch_line(name, model, drivers[driver_of(model)], port=0))}"


def _routes_anew(old: Config, new: Config, registry: Registry) -> bool:
    """Whether another router is needed; one that stays keeps what its plugins have learned."""
    types = [type for kind in _ROUTING_KINDS for type in registry.types(kind)]
    parameters = [[config.plugins.parameters.get(type) for type in types] for config in (old, new)]
    return parameters[0] != parameters[1] or any(
        path != ("max_retries",) for path in differences(old.routing, new.routing)
    )
