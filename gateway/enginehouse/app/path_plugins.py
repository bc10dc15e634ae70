"""The plugins on the path of requests that a gateway keeps until it ends, made and prepared for its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from enginehouse.app.exports import find_exporter
from enginehouse.app.findings import Findings
from enginehouse.app.plugin_instances import (
    ConfiguredPlugins,
    create,
    create_each,
    create_installed,
    find_only,
    identity,
    prepare,
    protocols_of_plugins,
)
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError, PluginError
from enginehouse.domain.foreign import shown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.continuers import Continuer
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.observers import Observer
from enginehouse.interfaces.protocols import ClientProtocol
from enginehouse.interfaces.schedulers import CallerTurns
from enginehouse.interfaces.services import Configured
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.relay.guarded_continuer import GuardedContinuer
from enginehouse.relay.guarded_middleware import GuardedMiddleware
from enginehouse.relay.middleware import Middleware, MiddlewareFacts
from enginehouse.relay.upstream.client import client_of
from enginehouse.relay.upstream.outside import Outside


class PathPlugins:
    """``protocols``: by type. ``turns``: what gives requests their turns, with its plugin.

    ``findings`` gets the errors; with one, this must not be used. ``join`` comes before there are requests.
    """

    def __init__(self, config: Config, registry: Registry, outside: Outside, findings: Findings) -> None:
        self._config, self._registry = config, registry
        collect = findings.collect
        self.observers: Sequence[tuple[PluginId, Observer]] = [*create_each(config, registry, "observer", findings)]
        self.exporter = collect(lambda: find_exporter(config.telemetry, self.observers))
        self.continuer = collect(self._find_continuer)
        self.web_sockets = collect(lambda: find_only(config, registry, "web_socket_server", "serve WebSockets"))
        self.turns = collect(self._find_turns)
        middleware = collect(self._find_middleware) or {}
        translates = "protocols" in middleware
        types = protocols_of_plugins(config, registry) if translates else ()
        protocols = create_each(config, registry, "protocol", findings, types)
        self.protocols: Mapping[str, ClientProtocol] = {plugin.type: each for plugin, each in protocols}
        named = [table for table in ("interceptors", "guards") if getattr(config, table)]
        self.interception: Middleware | None = None
        self.translation: Middleware | None = None
        with findings.collecting():
            if named and "interceptors" not in middleware:  # guards never fail open
                remedy = "enable the plugin 'interception', or remove the key"
                raise ConfigError("no enabled plugin asks interceptors", key=named[0], remedy=remedy)
        self._late = _LateContext()
        configured = ConfiguredPlugins(lambda: config, registry)
        facts = self._late.facts(configured, outside, reads_requests=bool(named))
        if named and "interceptors" in middleware:
            self.interception = collect(partial(self._use, *middleware["interceptors"], facts))
        if translates:
            self.translation = collect(partial(self._use, *middleware["protocols"], facts))

    def _find_continuer(self) -> Continuer | None:
        """The continuer; ``None`` if there is none, and streams end with their engines."""
        found = find_only(self._config, self._registry, "continuer", "continue streams")
        if found is None:
            return None
        plugin, continuer = found
        return continuer if plugin.trusted else GuardedContinuer(plugin, continuer)

    def _find_turns(self) -> tuple[PluginId, CallerTurns] | None:
        how = "scheduler", self._config.scheduling.scheduler, "scheduling.scheduler"
        make = create(self._config, self._registry, *how).shares
        return (identity(self._registry, *how), prepare(self._registry, *how[:2], make)) if make else None

    def _find_middleware(self) -> Mapping[str, tuple[PluginId, Middleware]]:
        """The middleware, by what it serves. Raises ``PluginError`` if two serve the same."""
        found: dict[str, tuple[PluginId, Middleware]] = {}
        for plugin, made in create_installed(self._config, self._registry, "middleware"):
            if made.serves not in ("interceptors", "protocols"):
                must = f"must serve 'interceptors' or 'protocols', got {shown(made.serves)}"
                raise self._registry.get("middleware", plugin.type).error(f"the middleware '{plugin.type}' {must}")
            guarded = made if plugin.trusted else GuardedMiddleware(plugin, made)
            other, _ = found.setdefault(made.serves, (plugin, guarded))
            if other != plugin:
                raise PluginError(f"{other} and {plugin} both serve {made.serves}: disable the plugin of one of them")
        return found

    def _use(self, plugin: PluginId, middleware: Middleware, facts: MiddlewareFacts) -> Middleware:
        prepare(self._registry, "middleware", plugin.type, partial(middleware.use, facts))
        return middleware

    def join(self, context: RelayContext) -> None:
        """Put them in force for requests of ``context``."""
        self._late.context = context
        context.interception, context.translation = self.interception, self.translation
        context.web_sockets = self.web_sockets


class _LateContext:
    """The context of requests, set after what refers to it: what is only built must leave no cycle."""

    context: RelayContext

    def facts(self, configured: Configured, outside: Outside, *, reads_requests: bool) -> MiddlewareFacts:
        def count(type: str, outcome: str) -> None:
            self.context.counters.intercepted[type, outcome] += 1

        def native(path: str, model: str) -> Sequence[str]:
            # interceptors read OpenAI's requests and answers
            return () if reads_requests else self.context.native(path, model)

        def knows(model: str) -> bool:
            return self.context.knows_model(model)

        def engine(backend: str) -> EngineClient:
            return client_of(self.context.upstreams, backend)

        return MiddlewareFacts(configured, outside.engine_memory, outside.clock.now, count, native, knows, engine)
