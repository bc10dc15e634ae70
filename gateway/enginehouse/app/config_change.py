"""Replaces the configuration of a running gateway, in one step of the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from enginehouse.app.build import build_launcher, build_swapper
from enginehouse.app.build_router import new_router
from enginehouse.app.config_diff import ConfigDiff, diff_configs
from enginehouse.app.plan import GatewayPlan
from enginehouse.app.plugin_instances import create, create_installed, identity
from enginehouse.app.request_path import PathChange, RequestPath
from enginehouse.app.service_changes import Joined, JoinedBackends, ModelSizes
from enginehouse.app.status_puller import StatusPuller
from enginehouse.config.schema import Config, HostSettings
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.ticket import Ticket
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.launch_line import LaunchRules, launch_rules
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.engines.probing import Prober
from enginehouse.engines.pulled_models import Downloads
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.plugin_manager.kinds import KINDS
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.scheduling_rules import facts_of_hosts

_log = logging.getLogger(__name__)

_KEPT_KINDS = [kind.name for kind in KINDS if kind.stays]


class CurrentConfig:
    """The configuration in force, and the parts of the gateway that it concerns.

    ``context`` is the hosts' view of it. ``on_change`` is called when another one is in force; ``version`` counts them,
    from 1. ``on_view`` is called with the figures that ``publish`` got. ``address``: where the gateway listens; set by
    a server.
    """

    address: tuple[str, int] | None = None

    def __init__(self, path: RequestPath, engines: ManagedEngines, prober: Prober, context: HostContext) -> None:
        self.path = path
        self.engines = engines
        self.prober = prober
        self.context = context
        self.joined = JoinedBackends(path.config, path.registry)
        self.sizes = ModelSizes()
        self.version = 1
        self.on_change: Callable[[], None] = lambda: None
        self.on_view: Callable[[object], None] = lambda view: None
        self.puller = StatusPuller(lambda: self.context, self.publish)

    @property
    def config(self) -> Config:
        return self.context.config

    def waiting(self) -> Collection[Ticket]:
        """The tickets of requests that wait in queues, or for a model."""
        return {*self.engines.waiting(), *self.path.relay.context.waiting_room.waiting()}

    def publish(self, view: object) -> None:
        """Show strategies the figures of all engines, also those of other processes."""
        self.path.relay.context.router.strategies.on_view(view, self.path.config.rescheduling)
        self.on_view(view)

    def rejoin(self) -> None:
        """Put in force what services have found and want, and no longer what is gone.

        Raises ``ConfigError`` or ``PluginError`` if that cannot be; then nothing has changed.
        """
        configured = self.sizes.sized(self.joined.in_force.without_found(self.config))
        change = ConfigChange(self, self.joined.joined_to(configured))
        change.work_out()
        change.complete()
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
    """A change to the configuration ``joined``, while the one of ``current`` stays in force.

    Made on the event loop, then worked out, wherever that may take long, completed on the loop, and carried out there.
    Each step raises ``ConfigError`` or ``PluginError`` for an unusable configuration, and changes nothing.

    ``joined`` has the backends that services found. ``found``: errors of the new configuration. ``diff`` says what
    changes. ``context`` is the hosts' view of the new configuration; ``context.config`` keeps old values where a change
    needs a restart.
    """

    diff: ConfigDiff
    context: HostContext

    def __init__(self, current: CurrentConfig, joined: Joined, found: Iterable[ConfigError] = ()) -> None:
        self.joined = joined
        self._current, self._old = current, current.config
        path = current.path
        self.plan = plan = GatewayPlan(joined.config, path.registry, path.outside, current.context.drivers, found)
        self._router = new_router(path.config, plan.config, path.registry, plan.findings)

    def work_out(self) -> None:
        """Find what changes, and make what only depends on the configuration. It may run in a thread.

        That is most of the work, and drivers may look at files.
        """
        path, plan = self._current.path, self.plan
        plan.check_launches(self._old.models)
        fixed = {*_KEPT_KINDS, *(type for kind in _KEPT_KINDS for type in path.registry.types(kind))}
        self.diff, config = diff_configs(self._old, plan.config, plan.relaunched, fixed)
        self._rules = launch_rules(config)
        self._path_change = PathChange(path, config, plan.drivers, self._router)

    def complete(self) -> None:
        """Make the rest. The configuration in force is still that for which this was made."""
        change, current = self._path_change, self._current
        change.complete()
        context = build_host_context(change.config, current.path, change.upstreams, self.plan.drivers, self._rules)
        self.context = context._replace(downloads=current.context.downloads)  # hosts of before share them
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


def build_host_context(
    config: Config,
    path: RequestPath,
    upstreams: dict[str, Upstream],
    drivers: Mapping[str, DriverSupport],
    rules: LaunchRules,
) -> HostContext:
    """The hosts' view of ``config``. They share the rest with the path of requests."""
    registry, scheduler = path.registry, config.scheduling.scheduler
    return HostContext(
        config=config,
        fleet=path.fleet,
        upstreams=upstreams,
        drivers=drivers,
        rules=rules,
        facts=facts_of_hosts(config),
        observers=path.observers,
        outside=path.outside,
        scheduler=identity(registry, "scheduler", scheduler, "scheduling.scheduler"),
        make_scheduler=partial(create, config, registry, "scheduler", scheduler, "scheduling.scheduler"),
        make_swapper=partial(build_swapper, config, registry),
        make_launcher=partial(build_launcher, config, registry),
        has_launcher=lambda host: host in config.hosts or HostSettings().launcher in registry.types("launcher"),
        downloads=Downloads(lambda: [source for _, source in create_installed(path.config, registry, "model_source")]),
    )
