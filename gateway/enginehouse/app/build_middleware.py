"""What stands between clients and their requests: the middleware that is installed, and what it works with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from enginehouse.app.plugin_instances import ConfiguredPlugins, create_installed, prepare
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError, PluginError
from enginehouse.domain.foreign import shown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.services import Configured
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.relay.guarded_middleware import GuardedMiddleware
from enginehouse.relay.middleware import Middleware, MiddlewareFacts
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
    named = [table for table in ("interceptors", "guards") if getattr(config, table)]
    if named and "interceptors" not in found:  # guards never fail open
        remedy = "enable the plugin 'interception', or remove the key"
        raise ConfigError("no enabled plugin asks interceptors", key=named[0], remedy=remedy)
    facts = _facts(ConfiguredPlugins(lambda: config, registry), context, reads_requests=bool(named))
    for serves, (plugin, middleware) in found.items():
        if serves == "interceptors" and not named:
            continue
        prepare(registry, "middleware", plugin.type, partial(middleware.use, facts))
        if serves == "interceptors":
            context.interception = middleware
        else:
            context.translation = middleware


def _facts(configured: Configured, context: RelayContext, *, reads_requests: bool) -> MiddlewareFacts:
    intercepted = context.counters.intercepted

    def count(type: str, outcome: str) -> None:
        intercepted[type, outcome] += 1

    def native(path: str, model: str) -> Sequence[str]:
        # interceptors read OpenAI's requests and answers
        return () if reads_requests else context.endpoints.native(path, model, context.fleet.snapshot)

    def engine(backend: str) -> EngineClient:
        return client_of(context.upstreams, backend)

    memory = context.engine_memory
    return MiddlewareFacts(configured, memory, context.clock.now, count, native, context.knows_model, engine)
