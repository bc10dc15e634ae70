"""Makes the parts that move live requests, from ``[rescheduling]`` and the registered plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import time

from enginehouse.app.plugin_instances import create, identity
from enginehouse.config.rescheduling import ReschedulingSettings
from enginehouse.config.schema import Config
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.foreign import describe
from enginehouse.domain.migration import Migrated, Migration
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.probing.status_puller import EngineToAsk, StatusPuller
from enginehouse.interfaces.migrators import Migrator
from enginehouse.interfaces.rescheduling import ReschedulingPolicy
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.rescheduling.cluster import Cluster
from enginehouse.rescheduling.dispatcher import MigrationDispatcher, PreparedMigrator
from enginehouse.rescheduling.live_figures import LiveRequests
from enginehouse.rescheduling.means import GatewayMeans
from enginehouse.rescheduling.planner import Planner, PreparedPolicy
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
    settings = config.rescheduling
    puller, live, recent = (
        StatusPuller(partial(_running_engines, context)),
        LiveRequests(relay),
        RecentMoves(settings.cool_down),
    )
    means = GatewayMeans(context, relay, live, puller.reports)

    def ended(migration: Migration, result: Migrated) -> None:
        recent.note(migration, result, int(time() * 1000))
        notify(migrated, migration, result)

    migrators = settings.migrators if settings.enabled else ()
    dispatcher = MigrationDispatcher(
        [_prepared_migrator(config, registry, type, means) for type in migrators],
        timeout=settings.migrate_timeout,
        counters=relay.context.counters,
        on_end=ended,
    )
    return Rescheduler(
        settings,
        puller=puller,
        cluster=Cluster(context, live, puller.reports),
        planner=build_planner(config, registry) if settings.enabled else Planner(()),
        dispatcher=dispatcher,
        recent=recent,
        on_view=lambda view, settings: relay.context.router.on_view(view, settings),
    )


def build_planner(config: Config, registry: Registry) -> Planner:
    """The configured policies, prepared. Raises ``ConfigError``, and ``PluginError`` if one fails."""
    return Planner([_prepared(config, registry, type) for type in _policy_types(config.rescheduling)])


def _running_engines(context: Callable[[], HostContext]) -> Iterator[EngineToAsk]:
    now = context()
    for backend in now.fleet.backends():
        if backend.state is ReplicaState.READY:
            client = Client(now.upstreams[backend.name], _TIMEOUT_S)
            yield EngineToAsk(backend.name, now.drivers[backend.driver], client)


def _policy_types(settings: ReschedulingSettings) -> Iterator[str]:
    """The policies in order. As in Llumnix, ``adaptive_pd`` adds those that it needs."""
    yield from settings.policies
    if settings.adaptive_pd:
        yield from (type for type in _ADAPTIVE_PD if type not in settings.policies)


def _prepared(config: Config, registry: Registry, type: str) -> PreparedPolicy:
    policy: ReschedulingPolicy = create(config, registry, "rescheduling_policy", type, "rescheduling.policies")
    try:
        policy.prepare(config.rescheduling)
    except EnginehouseError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"the rescheduling policy '{type}' cannot be prepared: {describe(error)}"
        raise registry.get("rescheduling_policy", type).error(problem) from error
    return PreparedPolicy(identity(registry, "rescheduling_policy", type), policy)


def _prepared_migrator(config: Config, registry: Registry, type: str, means: GatewayMeans) -> PreparedMigrator:
    migrator: Migrator = create(config, registry, "migrator", type, "rescheduling.migrators")
    try:
        migrator.prepare(means)
    except EnginehouseError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"the migrator '{type}' cannot be prepared: {describe(error)}"
        raise registry.get("migrator", type).error(problem) from error
    return PreparedMigrator(identity(registry, "migrator", type), migrator)
