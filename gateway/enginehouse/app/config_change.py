"""Replaces the configuration of a running gateway, in one step of the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from enginehouse.app.build import build_launcher, build_swapper
from enginehouse.app.config_diff import diff_configs
from enginehouse.app.plan import make_plan
from enginehouse.app.plugin_instances import create, create_installed, identity
from enginehouse.app.request_path import PathChange, RequestPath
from enginehouse.app.service_changes import Joined, JoinedBackends, ModelSizes
from enginehouse.app.status_puller import build_puller
from enginehouse.config.schema import Config, HostSettings, ModelSettings
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.ticket import Ticket
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.launch_line import fingerprint, launch_line, launch_rules
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.engines.probing import Prober
from enginehouse.engines.pulled_models import Downloads
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.plugin_manager.kinds import KINDS
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_log = logging.getLogger(__name__)

_KEPT_KINDS = [kind.name for kind in KINDS if kind.stays]


class CurrentConfig:
    """The configuration in force, and the parts of the gateway that it concerns.

    ``context`` is the hosts' view of it. ``on_change`` is called when another one is in force; ``version`` counts them,
    from 1. ``address``: where the gateway listens; set by a server.
    """

    address: tuple[str, int] | None = None

    def __init__(self, path: RequestPath, engines: ManagedEngines, prober: Prober, context: HostContext) -> None:
        self.path = path
        self.engines = engines
        self.prober = prober
        self.context = context
        self.joined = JoinedBackends(path.config, path.registry.types("driver"))
        self.sizes = ModelSizes()
        self.version = 1
        self.on_change: Callable[[], None] = lambda: None
        self.puller = build_puller(lambda: self.context)

    @property
    def config(self) -> Config:
        return self.context.config

    def waiting(self) -> Collection[Ticket]:
        """The tickets of requests that wait in queues, or for a model."""
        return {*self.engines.waiting(), *self.path.relay.context.waiting_room.waiting()}

    def rejoin(self) -> None:
        """Put in force what services have found and want, and no longer what is gone.

        Raises ``ConfigError`` or ``PluginError`` if that cannot be; then nothing has changed.
        """
        configured = self.sizes.sized(self.joined.in_force.without_found(self.config))
        change = ConfigChange(self, self.joined.joined_to(configured))
        self.put_in_force(change)
        if lines := "; ".join(change.diff.lines()):
            _log.info("Changed without a reload: %s", lines)

    def recall(self, running: Collection[str]) -> None:
        """Have as many replicas as an earlier gateway has left ``running``, by the names of their backends."""
        if self.sizes.recall(self.config, running):
            self.rejoin()

    def put_in_force(self, change: ConfigChange) -> None:
        change.carry_out()
        self.context = change.context
        self.version += 1
        self.on_change()


class ConfigChange:
    """A prepared change: holds everything that the configuration ``joined`` needs, while the old one stays in force.

    ``diff`` says what changes. ``context`` is the hosts' view of the new configuration; ``context.config`` keeps old
    values where a change needs a restart. ``joined`` has the backends that services found. ``found``: errors of the new
    configuration.
    """

    def __init__(self, current: CurrentConfig, joined: Joined, found: Iterable[ConfigError] = ()) -> None:
        path, registry, context = current.path, current.path.registry, current.context
        new, drivers, self.warnings = make_plan(joined.config, registry, path.outside, context.drivers, found)
        self.joined = joined
        launched = partial(_launched, {**context.drivers, **drivers})
        fixed = {*_KEPT_KINDS, *(type for kind in _KEPT_KINDS for type in registry.types(kind))}
        self.diff, config = diff_configs(context.config, new, launched, fixed)
        self._current = current
        self._old = context.config
        self._path_change = PathChange(path, config, drivers)
        self.context = build_host_context(config, path, self._path_change.upstreams, drivers)
        self._engines = current.engines.prepare(self.context)

    def carry_out(self) -> None:
        """Put everything in force, in one step of the event loop. Streams continue, and so do unchanged engines."""
        current = self._current
        self._probe(self._path_change.carry_out())
        current.joined.in_force = self.joined
        drain_timeout = self.context.config.server.drain_timeout
        current.engines.carry_out(self._engines, self.diff.models.relaunched, drain_timeout)

    def _probe(self, before: Mapping[str, Upstream]) -> None:
        """Probe the remote backends of the new configuration by its settings."""
        prober, config, old = self._current.prober, self.context.config, self._old
        prober.reconfigure(config.checks)
        for name in old.backends.keys() - config.backends.keys():
            prober.remove(name)
        for name, backend in config.backends.items():
            same = before.get(name) is self.context.upstreams[name] and old.backends[name].driver == backend.driver
            if not same or config.checks != old.checks:
                probe_backend(name, self._current.prober, self._current.engines, self.context)


def probe_backend(name: str, prober: Prober, engines: ManagedEngines, context: HostContext) -> None:
    """Begin to probe a backend that is not launched here."""
    prober.add(
        name,
        context.drivers[context.config.backends[name].driver],
        Client(context.upstreams[name], None),
        on_concurrency=partial(engines.remote.report, name),
        on_models=partial(engines.discover, name),
    )


def _launched(drivers: Mapping[str, DriverSupport], name: str, model: ModelSettings) -> str:
    """A text that is the same for the same launch of a model's engine, on any port. Raises ``ConfigError``."""
    line = launch_line(name, model, drivers[model.engine_driver].launch, port=0)
    return f"{model.hosts} {model.gpus} {fingerprint(line)}"


def build_host_context(
    config: Config, path: RequestPath, upstreams: dict[str, Upstream], drivers: Mapping[str, DriverSupport]
) -> HostContext:
    """The hosts' view of ``config``. They share the rest with the path of requests."""
    registry, scheduler = path.registry, config.scheduling.scheduler
    return HostContext(
        config=config,
        fleet=path.fleet,
        upstreams=upstreams,
        drivers=drivers,
        rules=launch_rules(config),
        observers=path.observers,
        outside=path.outside,
        scheduler=identity(registry, "scheduler", scheduler, "scheduling.scheduler"),
        make_scheduler=partial(create, config, registry, "scheduler", scheduler, "scheduling.scheduler"),
        make_swapper=partial(build_swapper, config, registry),
        make_launcher=partial(build_launcher, config, registry),
        has_launcher=lambda host: host in config.hosts or HostSettings().launcher in registry.types("launcher"),
        downloads=Downloads(lambda: [source for _, source in create_installed(config, registry, "model_source")]),
    )
