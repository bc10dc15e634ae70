"""What the gateway answers itself: the pages of operators, of plugins and of protocols, as one application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from prometheus_client.core import Metric
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from enginehouse.app.build import build_sources
from enginehouse.app.config_change import CurrentConfig
from enginehouse.app.plugin_instances import create_installed, routes_of_plugins, skip_or_raise
from enginehouse.app.reload import Reloader
from enginehouse.app.sampling import EverySecond, gauges
from enginehouse.app.services.service_runner import Services
from enginehouse.domain.compiled import COMPILED
from enginehouse.domain.foreign import shown
from enginehouse.http.application import build_application
from enginehouse.http.cross_origin import EXPOSED
from enginehouse.http.guarded_pages import CallerPages, OperatorPages, UpstreamRoot
from enginehouse.http.health_pages import HealthPages
from enginehouse.http.page_facts import MeasuredGateway, OperatedGateway, PageFacts
from enginehouse.interfaces.routes import GuardedRoutes
from enginehouse.relay.context import RelayContext
from enginehouse.relay.upstream.client import client_of
from enginehouse.routing.refusals import unknown_model
from enginehouse.telemetry.model_totals import model_totals

_version = cache(version)
_OF_MODEL = "{model}"
_Measure = Callable[[], Iterable[Metric]]


class Pages(NamedTuple):
    """Builds the application of a gateway with these parts. ``reloader`` reads its configuration again.

    ``folder``: where it keeps its state. ``workers``: the processes that relay requests. ``replace``: what starts
    another gateway that takes over, if a server can.
    """

    current: CurrentConfig
    services: Services
    reloader: Reloader
    every_second: EverySecond
    closing: asyncio.Event
    health: HealthPages
    measured: MeasuredGateway
    folder: Callable[[], Path]
    workers: Callable[[], Sequence[Mapping[str, Any]]]
    replace: Callable[[], Callable[[], Awaitable[int]] | None]

    def application(self) -> Starlette:
        """All pages."""
        config, since = self.current.config, self.current.path.outside.clock.epoch()
        measures: list[_Measure] = []
        facts = self._facts(since, measures)
        admission = self.current.path.admission
        routes = [*self._of_plugins(facts, measures, of_compat=True), UpstreamRoot(admission), *self.health.routes]
        routes += [*self._of_operators(), CallerPages(admission, self.services.pages.callers)]
        routes += self._of_plugins(facts, measures, of_compat=False)
        application = build_application(routes, self.current.path.paths, cors=config.server.cors, exposed=EXPOSED)
        application.state.facts = facts
        application.state.disables_plugins = bool(config.plugins.disabled)
        return application

    def _of_operators(self) -> Iterator[BaseRoute]:
        path = self.current.path
        for pages in (self.services.pages.operators, [*path.callers.accounting.routes()]):
            yield OperatorPages(path.admission, pages, path.callers.note)

    def _of_plugins(self, facts: PageFacts, measures: list[_Measure], *, of_compat: bool) -> Iterator[BaseRoute]:
        config, path = self.current.config, self.current.path
        wanted = routes_of_plugins(config, path.registry, of_compat=of_compat)
        for plugin, routes in create_installed(config, path.registry, "routes", wanted):
            if not isinstance(routes, (list, tuple)) or not all(isinstance(each, BaseRoute) for each in routes):
                problem = f"the routes '{plugin.type}' must be a list of Starlette routes, got {shown(routes)}"
                skip_or_raise(config, path.registry.get("routes", plugin.type).error(problem))
                continue
            for route in routes:
                if not isinstance(route, GuardedRoutes):
                    yield route
                    continue
                yield OperatorPages(path.admission, [*route.routes], path.callers.note)
                if route.every_second is not None:
                    self.every_second.add(plugin, partial(route.every_second, facts))
                if route.measure is not None:
                    measures.append(partial(route.measure, facts))

    def _facts(self, since: float, measures: list[_Measure]) -> PageFacts:
        path, engines = self.current.path, self.current.engines
        context = path.relay.context
        about = partial(self._about, since)
        return PageFacts(
            epoch=context.clock.epoch,
            totals=lambda: model_totals(context.counters),
            gauges=lambda: gauges(path.relay, engines),
            ended=context.activity.newest_first,
            ended_count=lambda: context.activity.count,
            session_headers=path.session_headers,
            logs=lambda: {"": path.log.ring, **engines.logs()},
            since=since,
            shows_metrics=path.config.telemetry.metrics,
            metrics=lambda: chain.from_iterable(measure() for measure in measures),
            engine_metrics=lambda: _engine_metrics(context),
            engine=lambda backend, *limits: client_of(context.upstreams, backend, *limits),
            models=lambda: context.fleet.snapshot.models,
            unknown_model=lambda name: unknown_model(name, context.fleet.snapshot.unlisted),
            aliases=lambda: context.filters.aliases,
            table=lambda name: getattr(path.config, name),
            model_facts=engines.model_facts,
            protocols=path.protocols.values,
            usage=path.callers.accounting.usage,
            limits=path.callers.accounting.limits_left,
            cost=path.callers.accounting.cost,
            audit=path.callers.accounting.audit,
            caller=path.admission.admit_caller,
            sender=path.admission.authentication.caller,
            pulled=lambda: build_sources(path.config, path.registry),
            observe=path.observers.add,
            ignore=path.observers.remove,
            folder=self.folder,
            closing=self.closing,
            gateway=OperatedGateway(path.relay, engines, about, self.reloader.reload, self.replace, self.measured),
        )

    def _about(self, since: float) -> Mapping[str, Any]:
        config, current = self.current.config, self.current
        return {
            **self.services.status(),
            **current.path.observers.status(),
            "version": _version("enginehouse"),
            "compiled": COMPILED,
            "strategy": config.routing.strategy,
            "trace_url": config.telemetry.trace_url,
            "uptime_s": round(current.path.outside.clock.epoch() - since, 3),
            "services": self.services.rows(),
            "kv_events": current.path.caches.figures(),
            "workers": self.workers(),
            "limits": {"store": config.limits.store, "problem": current.path.callers.accounting.problem()},
        }


def _engine_metrics(context: RelayContext) -> Iterator[tuple[str, str, str]]:
    """The backend and the path of each page, and the model that it is of: empty if it is about all of them."""
    for backend, upstream in context.upstreams.items():
        path = context.drivers[backend].figures.metrics_path
        if _OF_MODEL in path:
            for model in context.fleet.snapshot.ready_on(backend):
                yield backend, path.replace(_OF_MODEL, quote(model, safe="")), model
        elif upstream.pool.origin.host:
            yield backend, path, ""
