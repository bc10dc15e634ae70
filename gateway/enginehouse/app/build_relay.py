"""What the relay of live requests has of the configuration: rules for streams, questions to engines, interceptors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from enginehouse.app.build import reached
from enginehouse.app.plugin_instances import create, create_installed, identity, prepare
from enginehouse.config.aliases import Aliases
from enginehouse.config.routing import parse_hedge_after
from enginehouse.config.schema import Config, InterceptorSettings
from enginehouse.domain.errors import ConfigError, PluginError
from enginehouse.domain.foreign import shown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.engines.launch_line import launch_spec
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.interceptors import Interceptor, InterceptorAdapter
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.relay.continuation_rules import ContinuationRules
from enginehouse.relay.endpoints import Endpoints
from enginehouse.relay.engine_facts import EngineFacts
from enginehouse.relay.middleware import ChosenInterceptor, Middleware, MiddlewareFacts
from enginehouse.relay.retrying.hedge_delay import HedgeDelay
from enginehouse.routing.body.rewrite import FiltersByName
from enginehouse.routing.models_to_try import ModelsToTry
from enginehouse.scheduling.scheduling_rules import scheduling_limits

Drivers = Mapping[str, DriverSupport]


def configure_relay(context: RelayContext, config: Config, drivers: Drivers) -> None:
    """Put ``config`` in force for requests from now on, but for the router. ``drivers``: by type."""
    routing, by_backend = config.routing, drivers_by_backend(config, drivers)
    aliases = Aliases(routing.aliases)
    context.waiting_room.configure(scheduling_limits(config), config.scheduling.priorities)
    context.max_retries = routing.max_retries
    context.budget.share = routing.retry_budget
    context.gather = routing.gather and context.continuer is not None
    context.hold_answers = config.server.hold_answers
    context.heartbeat = config.streams.heartbeat
    context.renames = routing.answer_model == "asked"
    context.hash_users = config.auth.hash_users
    context.key_names = config.auth.key_names
    context.hedging = _hedge_delay(routing.hedge_after, context.hedging)
    context.drivers = by_backend
    context.continuation = ContinuationRules(config)
    context.engine_facts = EngineFacts(by_backend, _launch_specs(config, drivers), context.clock.now)
    context.endpoints = Endpoints(
        {backend: frozenset(each.driver.endpoints) for backend, each in by_backend.items()},
        {name: frozenset(model.endpoints) for name, model in config.models.items() if model.endpoints is not None},
        ModelsToTry(aliases, routing.fallbacks),
    )
    context.unlisted_models = frozenset(name for name, model in config.models.items() if model.unlisted)
    context.filters = FiltersByName(config.models, aliases)


def drivers_by_backend(config: Config, drivers: Drivers) -> Drivers:
    """The driver of every backend, by its name. ``drivers``: by type."""
    return {name: drivers[settings.driver] for name, _, settings in reached(config)}


def build_middleware(config: Config, registry: Registry, context: RelayContext) -> Middleware | None:
    """What asks the interceptors that ``interceptors`` names, and those that adapters make of their lists.

    ``None`` if there are none. Raises ``ConfigError`` or ``PluginError``.
    """
    chosen = [*_chosen(config, registry), *_adapted(config, registry)]
    if not chosen:
        return None
    made = list(create_installed(config, registry, "middleware"))
    if not made:  # guards never fail open
        remedy = "enable the plugin 'interception', or remove the key"
        key = "interceptors" if config.interceptors else "guards"
        raise ConfigError("no enabled plugin asks interceptors", key=key, remedy=remedy)
    if len(made) > 1:
        names = " and ".join(str(plugin) for plugin, _ in made)
        raise PluginError(f"{names} both ask interceptors: disable the plugin of one of them")
    [(plugin, middleware)] = made
    intercepted = context.counters.intercepted

    def count(type: str, outcome: str) -> None:
        intercepted[type, outcome] += 1

    facts = MiddlewareFacts(chosen, context.engine_memory, context.clock.now, count)
    prepare(registry, "middleware", plugin.type, partial(middleware.use, facts))
    return cast("Middleware", middleware)


def _chosen(config: Config, registry: Registry) -> Iterator[ChosenInterceptor]:
    for made, plugin, settings in _made(config, registry, "interceptor", "interceptors"):
        if isinstance(made, InterceptorAdapter):
            problem = f"'{plugin.type}' is used with '{made.table}', and sees no request itself"
            raise ConfigError(problem, key="interceptors", remedy="remove it")
        yield ChosenInterceptor(made, plugin, settings.timeout, settings.on_error == "pass", outer=False)


def _adapted(config: Config, registry: Registry) -> Iterator[ChosenInterceptor]:
    factories = {type: registry.get("interceptor", type).factory for type in registry.types("interceptor")}
    adapters: list[tuple[str, InterceptorAdapter]] = [
        (name, create(config, registry, "interceptor", name))
        for name, factory in factories.items()
        if isinstance(factory, type) and issubclass(factory, InterceptorAdapter)
    ]
    if config.guards and not any(each.table == "guards" for _, each in adapters):  # they never fail open
        remedy = "enable the plugin 'guards', or remove the key"
        raise ConfigError("no enabled plugin asks guards", key="guards", remedy=remedy)
    for name, adapter in adapters:
        for made, plugin, settings in _made(config, registry, adapter.kind, adapter.table):
            said: list[object] = []
            passes = settings.on_error == "pass"
            adapt = partial(adapter.adapt, plugin, made, passes=passes)
            prepare(registry, "interceptor", name, lambda: said.append(adapt()))  # noqa: B023 - called at once
            if not isinstance(said[0], Interceptor):
                problem = f"the interceptor '{name}' must make an Interceptor, got {shown(said[0])}"
                raise registry.get("interceptor", name).error(problem)
            yield ChosenInterceptor(said[0], plugin, settings.timeout, passes, outer=True)


def _made(
    config: Config, registry: Registry, kind: str, table: str
) -> Iterator[tuple[Any, PluginId, InterceptorSettings]]:
    """An instance of each plugin that a list of the configuration names."""
    named: Sequence[str | InterceptorSettings] = getattr(config, table)
    for number, each in enumerate(named):
        settings = InterceptorSettings(type=each) if isinstance(each, str) else each
        made = create(config, registry, kind, settings.type, f"{table}[{number}]", settings.parameters)
        yield made, identity(registry, kind, settings.type), settings


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
