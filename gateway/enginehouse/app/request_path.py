"""The path of a request, from the door to engines, as every process has it that relays: a gateway, or each worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from enginehouse.app.build import build_admission, build_drivers, renew_upstreams
from enginehouse.app.build_fleet import build_fleet
from enginehouse.app.build_relay import RelayParts, build_relay
from enginehouse.app.callers import Callers, Deliver
from enginehouse.app.exports import TraceTaker, build_tracer, find_exporter
from enginehouse.app.plugin_instances import create, create_installed, prepare
from enginehouse.config.schema import Config
from enginehouse.engines.followed_caches import FollowedCaches
from enginehouse.interfaces.limit_stores import LimitStore
from enginehouse.interfaces.protocols import Protocol
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.outside import Outside
from enginehouse.scheduling.request_queue import RequestQueue
from enginehouse.telemetry.access_log import AccessLog
from enginehouse.telemetry.observers import Observers


class RequestPath:
    """Made once; another configuration changes its parts.

    ``queues``: by backend; live. ``traces`` takes traced requests, in place of the exporter.
    ``limits``: in place of the configured store. ``check_timeout`` returns that in force. ``observed``: whether
    observers hear of the fleet, too.
    Raises ``ConfigError`` or ``PluginError``.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        outside: Outside,
        queues: Mapping[str, RequestQueue],
        traces: TraceTaker | None,
        limits: LimitStore | None,
        check_timeout: Callable[[], float],
        *,
        observed: bool,
    ) -> None:
        outside.engine_memory.most = config.server.max_engine_memory
        self._registry = registry
        observers = list(create_installed(config, registry, "observer"))
        self.observers = Observers(observer for _, observer in observers)
        self.exporter = find_exporter(config.telemetry, observers)
        protocols = create_installed(config, registry, "protocol")
        self.protocols: Mapping[str, Protocol] = {plugin.type: each for plugin, each in protocols}
        self.drivers = build_drivers(config, registry, {}, outside)
        self.fleet = build_fleet(config, self.observers if observed else None, outside.clock.epoch, self.drivers)
        self.caches = FollowedCaches(lambda name: Client(self.relay.context.upstreams[name], check_timeout()))
        scheduler = create(config, registry, "scheduler", config.scheduling.scheduler, "scheduling.scheduler")
        parts = RelayParts(
            self.fleet,
            renew_upstreams(config, {}, config, outside, self.drivers),
            self.drivers,
            queues,
            self.observers,
            [*self.protocols.values()],
            build_tracer(config.telemetry, self.exporter, traces),
            outside,
            shares=scheduler.shares,
            caches=self.caches,
        )
        self.relay = build_relay(config, registry, parts)
        self.access_log = AccessLog(json=config.telemetry.log_format == "json")
        self.callers = Callers(config, registry, outside.clock, self.observers, limits)
        self.admission = build_admission(config, self.relay, self.callers.keyring)

    def open(self, folder: Path, deliver: Deliver | None = None) -> None:
        """Read what the state folder keeps of callers and for protocols. Raises ``ConfigError`` or ``PluginError``.

        ``deliver``: takes what callers use, in a process that writes nothing itself.
        """
        self.callers.open(folder, self.relay.context, deliver)
        for type, protocol in self.protocols.items():
            prepare(self._registry, "protocol", type, partial(protocol.open, folder))
