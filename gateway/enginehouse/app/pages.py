"""What the gateway answers itself: the pages of operators, of plugins and of protocols, as one application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route

from enginehouse.api.application import Lifespan, build_application
from enginehouse.api.pages.cluster import ClusterPages
from enginehouse.api.pages.drains import DrainPages
from enginehouse.api.pages.endless import EndlessStreams
from enginehouse.api.pages.engine_pages import EnginePages
from enginehouse.api.pages.events import Events
from enginehouse.api.pages.health import HealthPages
from enginehouse.api.pages.history import History
from enginehouse.api.pages.lifecycle import Lifecycle
from enginehouse.api.pages.live_view import LiveView
from enginehouse.api.pages.logs import Logs
from enginehouse.api.pages.metrics.engines import EngineMetrics
from enginehouse.api.pages.metrics.page import Metrics
from enginehouse.api.pages.model_list import ModelList
from enginehouse.api.pages.operations import Operations
from enginehouse.api.pages.operators import OperatorPages
from enginehouse.api.pages.protocols import ProtocolPages, protocol_doors
from enginehouse.api.pages.reload import Reload
from enginehouse.api.pages.scale import ScalePages
from enginehouse.api.pages.series import SeriesPage
from enginehouse.api.pages.upstream import UpstreamRoute
from enginehouse.app.config_change import CurrentConfig, GatewayParts
from enginehouse.app.plugin_instances import create_installed, routes_of_plugins, skip_or_raise
from enginehouse.app.reload import Reloader
from enginehouse.config.schema import Config
from enginehouse.domain.foreign import shown
from enginehouse.interfaces.protocols import Protocol
from enginehouse.interfaces.routes import GuardedRoutes
from enginehouse.rescheduling.rescheduler import Rescheduler
from enginehouse.telemetry.event_stream import EventStream
from enginehouse.telemetry.observers import Observers
from enginehouse.telemetry.series.reading import SeriesReader
from enginehouse.telemetry.series.series_store import SeriesStore

_version = cache(version)


class Pages:
    """Builds the application of a gateway with these parts. ``current`` and ``reloader`` know its configuration.

    ``workers``: the processes that relay requests. ``replace``: what starts another gateway that takes over, if a
    server can.
    """

    def __init__(
        self,
        parts: GatewayParts,
        current: CurrentConfig,
        reloader: Reloader,
        *,
        protocols: Sequence[Protocol],
        observers: Observers,
        rescheduler: Rescheduler,
        series: SeriesStore,
        streams: EndlessStreams,
        health: HealthPages,
        metrics: Metrics,
        workers: Callable[[], Sequence[Mapping[str, Any]]],
        replace: Callable[[], Callable[[], Awaitable[int]] | None],
    ) -> None:
        self._parts = parts
        self._current = current
        self._reloader = reloader
        self._protocols = protocols
        self._observers = observers
        self._rescheduler = rescheduler
        self._series = SeriesReader(series)
        self._streams = streams
        self._health = health
        self._metrics = metrics
        self._workers = workers
        self._replace = replace

    def application(self, lifespan: Lifespan) -> Starlette:
        """All pages; ``lifespan`` starts and stops the gateway."""
        config, admission = self._config(), self._parts.admission
        routes = [*self._of_plugins(of_compat=True), *self._of_clients(), self._of_operators()]
        if config.telemetry.metrics:
            routes.append(Route("/metrics", self._metrics.page))
            routes.append(Route("/metrics/engines", EngineMetrics(self._parts.relay.context).page))
        routes += self._of_plugins(of_compat=False)
        application = build_application(admission, routes, cors=config.server.cors, lifespan=lifespan)
        application.state.series = self._series
        return application

    def _of_clients(self) -> Iterator[BaseRoute]:
        admission, callers, current = self._parts.admission, self._parts.callers, self._current
        engines, born = self._parts.engines, int(self._parts.relay.context.clock.epoch())
        models = ModelList(
            admission, lambda: self._config().models, lambda: current.aliases, engines.quantizations, born
        )
        yield from models.routes
        yield from ProtocolPages(self._protocols, models).routes
        yield from protocol_doors(admission, self._protocols)
        yield from EnginePages(admission).routes
        yield from self._health.routes
        yield UpstreamRoute(admission, lambda: current.aliases, lambda: self._config().scheduling.never_load_for)
        yield callers.own_page(lambda: admission)

    def _of_operators(self) -> BaseRoute:
        parts, relay, engines = self._parts, self._parts.relay, self._parts.engines
        clock = relay.context.clock.epoch
        live = LiveView(relay, engines)
        history = History(relay.context.activity, self._session_headers)
        events = EventStream(self._observers, snapshot=live.snapshot, progress=live.progress, clock=clock)
        return OperatorPages(
            parts.admission,
            [
                *Operations(relay, live, history, self._about).routes,
                *history.routes,
                *SeriesPage(self._series, clock).routes,
                *DrainPages(relay, engines).routes,
                *Lifecycle(engines).routes,
                *ScalePages(parts.scaling.status).routes,
                *ClusterPages(self._rescheduler.view, self._rescheduler.records).routes,
                *Events(events, self._streams).routes,
                *Logs(engines, parts.log.ring, self._streams).routes,
                *Reload(self._reloader.reload, self._replace).routes,
                *parts.callers.pages(lambda: parts.admission),
            ],
            parts.callers.note,
        )

    def _of_plugins(self, *, of_compat: bool) -> Iterator[BaseRoute]:
        config, registry, admission = self._config(), self._parts.registry, self._parts.admission
        wanted = routes_of_plugins(config, registry, of_compat=of_compat)
        for plugin, routes in create_installed(config, registry, "routes", wanted):
            if not isinstance(routes, (list, tuple)) or not all(isinstance(each, BaseRoute) for each in routes):
                problem = f"the routes '{plugin.type}' must be a list of Starlette routes, got {shown(routes)}"
                skip_or_raise(config, registry.get("routes", plugin.type).error(problem))
                continue
            for route in routes:
                guarded = isinstance(route, GuardedRoutes)
                yield OperatorPages(admission, route.routes, self._parts.callers.note) if guarded else route

    def _config(self) -> Config:
        return self._current.config

    def _session_headers(self) -> Sequence[str]:
        """The headers that name the session of a request, as ``routing.session`` has them."""
        sources = self._config().routing.session
        return [source.removeprefix("header:") for source in sources if source.startswith("header:")]

    def _about(self) -> Mapping[str, Any]:
        config, parts = self._config(), self._parts
        return {
            "version": _version("enginehouse"),
            "strategy": config.routing.strategy,
            "trace_url": config.telemetry.trace_url,
            "discovery": parts.discovery.status(),
            "kv_events": parts.caches.figures(),
            "workers": self._workers(),
            "scaling": parts.scaling.status(),
            "limits": {"store": config.limits.store, "problem": parts.callers.store.problem()},
        }
