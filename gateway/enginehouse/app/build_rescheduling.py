"""Makes the parts that move live requests, from ``[rescheduling]`` and the registered plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from enginehouse.app.plugin_instances import create, identity, prepare
from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.config.schema import Config
from enginehouse.domain.errors import NotFound
from enginehouse.domain.migration import Migrated, Migration
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.probing.status_puller import EngineToAsk, InstanceReport, StatusPuller
from enginehouse.interfaces.migrators import MigrationMeans, Migrator
from enginehouse.interfaces.rescheduling_policies import ReschedulingPolicy
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.outside import Outside
from enginehouse.rescheduling.cluster import Cluster
from enginehouse.rescheduling.dispatcher import MigrationDispatcher
from enginehouse.rescheduling.gateway_means import GatewayMeans
from enginehouse.rescheduling.live_figures import PlacedRequests
from enginehouse.rescheduling.planner import Planner
from enginehouse.rescheduling.recent_moves import RecentMoves
from enginehouse.rescheduling.rescheduler import Rescheduler
from enginehouse.telemetry.observers import Callbacks, notify

_TIMEOUT_S = 5.0
_ADAPTIVE_PD = ("binpacking_consolidation", "binpacking_mitigation")


def build_rescheduler(
    config: Config, registry: Registry, context: Callable[[], HostContext], relay: Relay, migrated: Callbacks
) -> Rescheduler:
    """All parts of ``[rescheduling]``; without ``enabled`` there are no policies and no migrators.

    Raises ``ConfigError``, and ``PluginError`` if a plugin fails. ``migrated``: observers' methods for that event.
    """
    settings, clock, outside = config.rescheduling, relay.context.clock, context().outside
    note = partial(_note_figures, context)
    puller, live = StatusPuller(partial(_running_engines, context), clock, note), PlacedRequests(relay)
    means = GatewayMeans(context, relay, live, puller.reports)
    recent = RecentMoves(settings.cool_down)

    def ended(migration: Migration, result: Migrated) -> None:
        recent.note(migration, result, clock.epoch_ms())
        notify(migrated, migration, result)

    return Rescheduler(
        settings,
        puller=puller,
        cluster=Cluster(context, live, puller.reports, clock),
        planner=build_planner(config, registry) if settings.enabled else Planner(()),
        dispatcher=MigrationDispatcher(
            [_prepared_migrator(config, registry, type, means, outside) for type in _migrator_types(settings)],
            timeout=settings.migrate_timeout,
            counters=relay.context.counters,
            on_end=ended,
            clock=clock,
        ),
        recent=recent,
        on_view=lambda view, settings: relay.context.router.strategies.on_view(view, settings),  # a reload replaces it
        clock=clock,
    )


def build_planner(config: Config, registry: Registry) -> Planner:
    """The configured policies, prepared. Raises ``ConfigError``, and ``PluginError`` if one fails."""
    return Planner([_prepared(config, registry, type) for type in _policy_types(config.rescheduling)])


def _running_engines(context: Callable[[], HostContext]) -> Iterator[EngineToAsk]:
    now = context()
    for backend in now.fleet.backends():
        if backend.state is ReplicaState.READY:
            client = Client(now.upstreams[backend.name], _TIMEOUT_S)
            yield EngineToAsk(backend.name, now.drivers[backend.driver].figures, client)


def _note_figures(context: Callable[[], HostContext], name: str, report: InstanceReport) -> None:
    """Show routing what the engine of the backend ``name`` reported."""
    status = report.status
    with suppress(NotFound):  # a reload has just removed it
        total = status.num_total_gpu_tokens
        usage = status.num_used_gpu_tokens / total if total else 0.0
        load = context().fleet.load(name)
        load.report(status.num_waiting_requests, usage, total, report.asked_at)
        load.report_adapters(status.active_loras, status.max_loras)


def _policy_types(settings: ReschedulingSettings) -> Iterator[str]:
    """The policies in order. As in Llumnix, ``adaptive_pd`` adds those that it needs."""
    yield from settings.policies
    if settings.adaptive_pd:
        yield from (type for type in _ADAPTIVE_PD if type not in settings.policies)


def _prepared(config: Config, registry: Registry, type: str) -> tuple[PluginId, ReschedulingPolicy]:
    policy: ReschedulingPolicy = create(config, registry, "rescheduling_policy", type, "rescheduling.policies")
    prepare(registry, "rescheduling_policy", type, partial(policy.prepare, config.rescheduling))
    return identity(registry, "rescheduling_policy", type), policy


def _migrator_types(settings: ReschedulingSettings) -> Sequence[str]:
    return settings.migrators if settings.enabled else ()


def _prepared_migrator(
    config: Config, registry: Registry, type: str, means: MigrationMeans, outside: Outside
) -> tuple[PluginId, Migrator]:
    migrator = outside.migrator(type, create(config, registry, "migrator", type, "rescheduling.migrators"))
    prepare(registry, "migrator", type, partial(migrator.prepare, means))
    return identity(registry, "migrator", type), migrator
