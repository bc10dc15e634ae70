"""Makes the rules of the relay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from enginehouse.app.build import reached
from enginehouse.config.routing import Aliases, parse_hedge_after
from enginehouse.config.schema import Config, TimeoutSettings
from enginehouse.engines.launch_line import launch_spec
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.relay.context import RelayContext
from enginehouse.relay.engine_facts import EngineFacts
from enginehouse.relay.retries import HedgeDelay
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.rewrite import FiltersByName
from enginehouse.scheduling.scheduling_rules import scheduling_limits
from enginehouse.telemetry import metric_list as metrics

Drivers = Mapping[str, DriverSupport]


class BackendParts(NamedTuple):
    """What the relay keeps for each backend, by its name: the driver, how it is launched, and its time limits.

    ``time_limits``: those of the backend, and those of models that it serves with others.
    """

    drivers: Drivers
    launch_specs: Mapping[str, LaunchSpec]
    time_limits: Mapping[str, tuple[TimeoutSettings, Mapping[str, TimeoutSettings]]]

    def limit(self, upstreams: Mapping[str, Upstream]) -> None:
        """Apply the time limits to ``upstreams``."""
        for name, (limits, of_models) in self.time_limits.items():
            upstreams[name].timeouts, upstreams[name].limits = limits, of_models


def backend_parts(config: Config, drivers: Drivers) -> BackendParts:
    """What ``config`` alone decides, which takes long for hundreds of backends. ``drivers``: by type."""
    of_models = {name: model.timeouts for name, model in config.models.items() if model.timeouts}
    limits = {
        name: (settings.timeouts, {}) if settings.timeouts else (config.timeouts, of_models)
        for name, _, settings in reached(config)
    }
    return BackendParts(drivers_by_backend(config, drivers), _launch_specs(config, drivers), limits)


def configure_relay(context: RelayContext, config: Config, parts: BackendParts) -> None:
    """Put ``config`` in force for requests from now on, but for the router."""
    routing, by_backend = config.routing, parts.drivers
    aliases = Aliases(routing.aliases)
    context.waiting_room.configure(scheduling_limits(config), config.scheduling.priorities)
    context.config = config
    context.budget.share = routing.retry_budget
    context.gather = routing.gather and context.continuer is not None
    context.heartbeat = config.streams.heartbeat
    context.hash_users = config.auth.hash_users
    context.hedging = _hedge_delay(routing.hedge_after, context.hedging)
    context.drivers = by_backend
    context.counters.have(metrics.FILTER_DROPS, context.router.filter_drops)
    context.counters.have(metrics.DROPPED, context.engine_memory.dropped)
    context.engine_facts = EngineFacts(by_backend, parts.launch_specs, context.clock.now)
    context.endpoints = {backend: frozenset(each.driver.endpoints) for backend, each in by_backend.items()}
    context.filters = FiltersByName(config.models, aliases)


def drivers_by_backend(config: Config, drivers: Drivers) -> Drivers:
    """The driver of every backend, by its name. ``drivers``: by type."""
    return {name: drivers[settings.driver] for name, _, settings in reached(config)}


def _hedge_delay(hedge_after: str, before: HedgeDelay | None) -> HedgeDelay | None:
    """The delay of hedges; ``before`` stays, with its measured times, if the configuration has not changed."""
    after = parse_hedge_after(hedge_after)
    if after is None:
        return None
    return before if before is not None and before.after == after else HedgeDelay(after)


def _launch_specs(config: Config, drivers: Drivers) -> Mapping[str, LaunchSpec]:
    return {
        backend: launch_spec(name, model, drivers[model.engine_driver].launch)
        for name, model in config.models.items()
        for backend in model.backends(name)
    }
