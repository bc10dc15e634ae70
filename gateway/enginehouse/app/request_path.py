"""The path of a request, from clients to engines, as every process has it that relays: a gateway, or each worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from functools import partial
from pathlib import Path

from enginehouse.app.build import build_admission, build_fleet, renew_upstreams
from enginehouse.app.build_relay import backend_parts, configure_relay
from enginehouse.app.build_router import RouterPlugins
from enginehouse.app.callers import Callers, Deliver
from enginehouse.app.exports import TraceTaker, build_tracer
from enginehouse.app.path_plugins import PathPlugins
from enginehouse.app.plugin_instances import ConfiguredPlugins, prepare
from enginehouse.config.schema import Config
from enginehouse.config.secret_variables import secret_values
from enginehouse.engines.followed_caches import CacheView, FollowedCaches, kv_events_of
from enginehouse.http.cross_origin import CrossOriginProtection
from enginehouse.http.relayed_paths import RelayedPaths
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.flow_control import Backlog
from enginehouse.scheduling.request_queue import RequestQueue
from enginehouse.scheduling.waiting_room import WaitingRoom
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.logs import GatewayLog, configure_logs
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.telemetry.record_delivery import RecordDelivery


class RequestPath:
    """Made once, of its ``plugins``; a ``PathChange`` puts another ``config`` in force.

    ``drivers``: by type. ``queues``: by backend; live. ``log``: the gateway's own. ``traces`` takes traced requests,
    in place of the exporter. ``observed``: whether observers hear of the fleet, too.
    Raises ``ConfigError`` or ``PluginError``.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        drivers: dict[str, DriverSupport],
        outside: Outside,
        queues: Mapping[str, RequestQueue],
        log: GatewayLog,
        traces: TraceTaker | None,
        callers: Callers,
        plugins: PathPlugins,
        router: RouterPlugins,
        *,
        observed: bool,
    ) -> None:
        outside.engine_memory.most = config.server.max_engine_memory
        self.config, self.registry, self.outside, self.log = config, registry, outside, log
        self.secrets = secret_values(config)
        self.observers = Observers([each for _, each in plugins.observers], [plugin for plugin, _ in plugins.observers])
        self.exporter, self.protocols = plugins.exporter, plugins.protocols
        self.drivers = drivers
        self.fleet = build_fleet(config, self.observers if observed else None, outside.clock.epoch, self.drivers)
        self.caches = FollowedCaches(
            lambda name: Client(self.relay.context.upstreams[name], self.config.checks.timeout)
        )
        context = self._context(queues, plugins, router)
        plugins.join(context)
        self.relay = Relay(context, RecordDelivery(self.observers.callbacks("finished"), outside.clock.now))
        context.counters.have(metrics.RECORDS_DROPPED, self.relay.requests.delivery.dropped)
        for plugin, observer in plugins.observers:
            aside = partial(self.relay.asides.send, plugin)
            prepare(registry, "observer", plugin.type, partial(context.counters.lend, observer))
            prepare(registry, "observer", plugin.type, partial(observer.use_aside, aside))
        context.tracer = build_tracer(config.telemetry, self.exporter, traces)
        self.observers.add(context.waiting_room)  # it looks for slots at what they hear
        self.callers = callers
        callers.count(context, self.observers)
        self.admission = build_admission(config, self.relay, self.callers.authentication)
        self.paths = RelayedPaths(
            self.admission,
            self.protocols.values(),
            lambda: context.filters.aliases,
            lambda: self.config.scheduling.never_load_for,
        )

    def _context(self, queues: Mapping[str, RequestQueue], plugins: PathPlugins, router: RouterPlugins) -> RelayContext:
        config, clock = self.config, self.outside.clock

        def backlogs(model: str) -> Set[Backlog]:
            found = (queues.get(each.backend) for each in self.fleet.snapshot.candidates(model))
            return {queue.backlog: None for queue in found if queue is not None}.keys()  # sums keep their order

        room = WaitingRoom(
            lambda model: self.fleet.snapshot.candidates(model),
            backlogs,
            lambda: asyncio.get_running_loop().time(),
            partial(notify, self.observers.callbacks("queue_changed")),
        )
        kv_events_of(config, self.drivers)  # raises if the package that reads them is missing
        caches = CacheView(self.caches)
        self.caches.use(caches)
        context = RelayContext(
            router.router(clock, caches, room.counts),
            self.fleet,
            renew_upstreams(config, {}, config, self.outside, self.drivers),
            queues=queues,
            observers=self.observers,
            clock=clock,
            max_series=config.telemetry.max_series,
            protocols={path: each for each in plugins.protocols.values() for path in each.paths},
            engine_memory=self.outside.engine_memory,
            continuer=plugins.continuer,
            waiting_room=room,
            turns=plugins.turns,
        )
        parts = backend_parts(config, self.drivers)
        configure_relay(context, config, parts)
        parts.limit(context.upstreams)
        return context

    def open(self, folder: Path, deliver: Deliver | None = None) -> None:
        """Read what the state folder keeps of callers and for protocols. Raises ``ConfigError`` or ``PluginError``.

        ``deliver``: takes what callers use, in a process that writes nothing itself.
        """
        self.callers.open(folder, deliver)
        for type, protocol in self.protocols.items():
            prepare(self.registry, "protocol", type, partial(protocol.open, folder))

    def session_headers(self) -> Sequence[str]:
        """The headers that name the session of a request, as ``routing.session`` has them."""
        sources = self.config.routing.session
        return [source.removeprefix("header:") for source in sources if source.startswith("header:")]

    def start(self) -> None:
        """Start observers, on the running event loop, and let readers read the log there."""
        self.log.open()
        self.observers.start()
        self.observe()

    def observe(self) -> None:
        """Have observers called with what they want to see under the configuration in force."""
        counters, configured = self.relay.context.counters, ConfiguredPlugins(lambda: self.config, self.registry)
        counters.forget_shown()
        counters.notes_shown = True
        self.relay.requests.at_end = self.observers.wanted("at_end", configured)
        self.relay.requests.waiting.wanted = self.observers.wanted("streams_wait", configured)
        self.relay.asides.show(self.observers.wanted("with_contents", configured))
        counters.notes_shown = False

    def follow_caches(self) -> None:
        """Follow the prefix caches of engines that publish events."""
        self.caches.follow(kv_events_of(self.config, self.drivers))

    async def close(self) -> None:
        """Deliver the last records, stop observers, and write what callers have used."""
        self.relay.requests.delivery.close()
        await self.observers.stop()
        await self.callers.close()


class PathChange:
    """What requests need of the configuration ``config``, while another one is in force. ``drivers``: by type.

    ``router``: the plugins of its router, if it needs a new one.
    It is made anywhere, also in a thread, then completed and carried out on the event loop.
    Raises ``ConfigError`` or ``PluginError``.
    """

    upstreams: dict[str, Upstream]

    def __init__(
        self, path: RequestPath, config: Config, drivers: dict[str, DriverSupport], router: RouterPlugins | None
    ) -> None:
        self.config = config
        self._path, self._drivers, self._new_router = path, drivers, router
        self._fleet = build_fleet(config, drivers=drivers)
        self._parts = backend_parts(config, drivers)
        self._kv_events = kv_events_of(config, drivers)
        self._secrets = secret_values(config)

    def complete(self) -> None:
        """Make what plugins or connections to engines are part of."""
        path, config, context = self._path, self.config, self._path.relay.context
        self._router = context.router
        self._view: CacheView | None = None
        if self._new_router is not None:
            self._view = CacheView(path.caches)
            self._router = self._new_router.router(context.clock, self._view, context.waiting_room.counts)
        self.upstreams = renew_upstreams(path.config, context.upstreams, config, path.outside, self._drivers)

    def carry_out(self) -> Mapping[str, Upstream]:
        """Put it in force, in one step of the event loop. Returns the upstreams that were used before."""
        path, config = self._path, self.config
        before, old = path.relay.context.upstreams, path.config
        path.config, path.drivers = config, self._drivers
        self._change_admission()
        self._change_relay()
        if self._view is not None:
            path.caches.use(self._view)
        path.caches.follow(self._kv_events)
        path.callers.configure(config)
        path.fleet.become(self._fleet)
        for name, upstream in before.items():
            if self.upstreams.get(name) is not upstream:
                upstream.pool.close()
        settings = self._secrets, config.telemetry.log_format, config.telemetry.log_level
        if settings != (path.secrets, old.telemetry.log_format, old.telemetry.log_level):
            configure_logs(config.telemetry, path.log, self._secrets)
        path.secrets = self._secrets
        path.observe()
        return before

    def _change_admission(self) -> None:
        admission, config = self._path.admission, self.config
        admission.cross_origin = CrossOriginProtection(config.server)
        admission.max_body = config.server.max_body
        admission.body_memory.most = config.server.max_body_memory
        admission.client_timeout = config.timeouts.client

    def _change_relay(self) -> None:
        relay, config = self._path.relay, self.config
        context = relay.context
        context.engine_memory.most = config.server.max_engine_memory
        if self._router is not context.router:
            self._router.filter_drops.update(context.router.filter_drops)
            self._router.strategies.recall(context.router.strategies.memories())
        context.router = self._router
        configure_relay(context, config, self._parts)
        self._parts.limit(self.upstreams)
        context.upstreams = self.upstreams
