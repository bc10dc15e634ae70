"""What stands between clients and their requests: the middleware that is installed, and what it works with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from enginehouse.app.needs import adapts
from enginehouse.app.plugin_instances import create, create_installed, identity, prepare
from enginehouse.config.schema import Config, InterceptorSettings
from enginehouse.domain.errors import ConfigError, PluginError
from enginehouse.domain.foreign import shown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.relay.guarded_middleware import GuardedMiddleware
from enginehouse.relay.middleware import ChosenInterceptor, Middleware, MiddlewareFacts
from enginehouse.relay.upstream.client import client_of

FoundMiddleware = Mapping[str, tuple[PluginId, Middleware]]


def find_middleware(config: Config, registry: Registry) -> FoundMiddleware:
    """The middleware of the enabled plugins, by what it serves.

    Raises ``PluginError`` if two serve the same.
    """
    found: dict[str, tuple[PluginId, Middleware]] = {}
    for plugin, made in create_installed(config, registry, "middleware"):
        if made.serves not in ("interceptors", "protocols"):
            problem = (
                f"the middleware '{plugin.type}' must serve 'interceptors' or 'protocols', got {shown(made.serves)}"
            )
            raise registry.get("middleware", plugin.type).error(problem)
        guarded = made if plugin.trusted else GuardedMiddleware(plugin, made)
        other, _ = found.setdefault(made.serves, (plugin, guarded))
        if other != plugin:
            raise PluginError(f"{other} and {plugin} both serve {made.serves}: disable the plugin of one of them")
    return found


def use_middleware(found: FoundMiddleware, config: Config, registry: Registry, context: RelayContext) -> None:
    """Put middleware in force, that of interceptors only if the configuration names any.

    Raises ``ConfigError`` or ``PluginError``.
    """
    chosen = [*_chosen(config, registry), *_adapted(config, registry)]
    if chosen and "interceptors" not in found:  # guards never fail open
        remedy = "enable the plugin 'interception', or remove the key"
        key = "interceptors" if config.interceptors else "guards"
        raise ConfigError("no enabled plugin asks interceptors", key=key, remedy=remedy)
    facts = _facts(chosen, context)
    for serves, (plugin, middleware) in found.items():
        if serves == "interceptors" and not chosen:
            continue
        prepare(registry, "middleware", plugin.type, partial(middleware.use, facts))
        if serves == "interceptors":
            context.interception = middleware
        else:
            context.translation = middleware


def _facts(chosen: Sequence[ChosenInterceptor], context: RelayContext) -> MiddlewareFacts:
    intercepted = context.counters.intercepted

    def count(type: str, outcome: str) -> None:
        intercepted[type, outcome] += 1

    def native(path: str, model: str) -> Sequence[str]:
        # interceptors read OpenAI's requests and answers
        return () if chosen else context.endpoints.native(path, model, context.fleet.snapshot)

    def engine(backend: str) -> EngineClient:
        return client_of(context.upstreams, backend)

    return MiddlewareFacts(chosen, context.engine_memory, context.clock.now, count, native, context.knows_model, engine)


def _chosen(config: Config, registry: Registry) -> Iterator[ChosenInterceptor]:
    for made, plugin, settings in _made(config, registry, "interceptor", "interceptors"):
        if adapts(made):
            problem = f"'{plugin.type}' is used with '{made.table}', and sees no request itself"
            raise ConfigError(problem, key="interceptors", remedy="remove it")
        yield ChosenInterceptor(made, plugin, settings.timeout, settings.on_error == "pass", outer=False)


def _adapted(config: Config, registry: Registry) -> Iterator[ChosenInterceptor]:
    factories = {type: registry.get("interceptor", type).factory for type in registry.types("interceptor")}
    adapters = [
        (name, create(config, registry, "interceptor", name))
        for name, factory in factories.items()
        if isinstance(factory, type) and adapts(factory)
    ]
    for name, adapter in adapters:
        for made, plugin, settings in _made(config, registry, adapter.kind, adapter.table):
            passes = settings.on_error == "pass"
            adapted = prepare(registry, "interceptor", name, partial(adapter.adapt, plugin, made, passes=passes))
            yield ChosenInterceptor(adapted, plugin, settings.timeout, passes, outer=True)


def _made(
    config: Config, registry: Registry, kind: str, table: str
) -> Iterator[tuple[Any, PluginId, InterceptorSettings]]:
    """An instance of each plugin that a list of the configuration names."""
    named: Sequence[str | InterceptorSettings] = getattr(config, table)
    for number, each in enumerate(named):
        settings = InterceptorSettings(type=each) if isinstance(each, str) else each
        made = create(config, registry, kind, settings.type, f"{table}[{number}]", settings.parameters)
        yield made, identity(registry, kind, settings.type), settings
