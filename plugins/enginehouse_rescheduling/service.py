"""Makes views of the cluster again and again, plans, and carries plans out."""

from __future__ import annotations

import asyncio
from functools import partial

from enginehouse import Service
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse.runtime import PluginId
from enginehouse.services import Measured, MetricInfo, ServiceGateway
from enginehouse_kit.rescheduling import ClusterView, Migrated, Migration, Migrator, Plan
from enginehouse_rescheduling.cluster import Cluster
from enginehouse_rescheduling.dispatcher import GatewayMeans, MigrationDispatcher
from enginehouse_rescheduling.placed_requests import PlacedRequests
from enginehouse_rescheduling.planner import Planner, RecentMoves, build_planner

_SELECTION = ("rescheduling_req_select_rule", "rescheduling_req_select_order")
MIGRATIONS = MetricInfo(
    "counter",
    "enginehouse_rescheduling",
    "Migrations that rescheduling began, by what they selected; the labels are Llumnix's.",
    _SELECTION,
)
FAILED_MIGRATIONS = MetricInfo(
    "counter",
    "enginehouse_rescheduling_failed",
    "Those of them that failed, or moved none of the selected requests.",
    _SELECTION,
)
EMPTY_MIGRATIONS = MetricInfo(
    "counter", "enginehouse_rescheduling_empty", "Those of them that found no request to move.", _SELECTION
)


class Rescheduling(Service):
    """The rounds of ``[rescheduling]``. Without ``enabled`` there are none; the view of the cluster is there anyway.

    With ``mode = "standalone"``, a round only gives the view to strategies.

    Plans are made in a thread, so that the event loop is free.
    """

    table = "rescheduling"
    metrics = (MIGRATIONS, FAILED_MIGRATIONS, EMPTY_MIGRATIONS)
    _gateway: ServiceGateway
    _settings: ReschedulingSettings
    _cluster: Cluster
    _planner: Planner
    _dispatcher: MigrationDispatcher
    _recent: RecentMoves
    _means: GatewayMeans
    _made_for: object

    def prepare(self, gateway: ServiceGateway) -> None:
        self._gateway = gateway
        self._settings = settings = gateway.table("rescheduling")
        live = PlacedRequests(gateway)
        self._means = GatewayMeans(gateway, live)
        self._cluster = Cluster(gateway, live)
        self._recent = RecentMoves(settings.cool_down)
        self._dispatcher = MigrationDispatcher(
            (), timeout=settings.migrate_timeout, on_end=partial(_ended, gateway, self._recent), clock=gateway.clock
        )
        self._planner = Planner(())
        self._use_plugins()

    def _use_plugins(self) -> None:
        """Have policies and migrators with their parameters. Raises ``ConfigError`` or ``PluginError``."""
        gateway, settings = self._gateway, self._settings
        self._made_for = gateway.table("plugins")
        if settings.enabled:
            self._planner = build_planner(gateway)
            self._dispatcher.migrators = [_migrator(gateway, type, self._means) for type in settings.migrators]

    def reconfigure(self, gateway: ServiceGateway) -> None:
        if gateway.table("plugins") != self._made_for:
            self._use_plugins()

    def start(self, gateway: ServiceGateway) -> None:
        from enginehouse_rescheduling.pages import cluster_routes  # takes longer to import than a short command runs

        gateway.pages.add(cluster_routes(self.view, self._dispatcher.records))
        if self._settings.enabled:
            gateway.figures.every(self._settings.interval)
            planned_here = self._settings.mode == "colocated"
            gateway.every(self._settings.interval, self.round if planned_here else self.publish)

    async def view(self) -> ClusterView:
        """The cluster now."""
        if not self._settings.enabled:
            await self._gateway.figures.ask()
        return await self._cluster.view(lambda instance: True)

    async def publish(self) -> None:
        """Make a view for the strategies that route by one."""
        self._gateway.figures.publish(await self._cluster.view(lambda instance: False))

    async def round(self) -> None:
        """Make a view, plan and move once. Moves may take seconds, in which strategies get further views."""
        view = await self._cluster.view(self._planner.reads_streams)
        self._gateway.figures.publish(view)
        plan = await asyncio.to_thread(self._planner.plan, view, self._recent)
        moving = asyncio.ensure_future(self._dispatcher.carry_out(_with_live_requests(plan, view), view))
        try:
            while not (await asyncio.wait({moving}, timeout=self._settings.interval))[0]:
                await self.publish()
            moving.result()
        finally:
            moving.cancel()

    def measure(self) -> Measured:
        counts = self._dispatcher.counts
        return {
            MIGRATIONS: list(counts.all.items()),
            FAILED_MIGRATIONS: list(counts.failed.items()),
            EMPTY_MIGRATIONS: list(counts.empty.items()),
        }


def _ended(gateway: ServiceGateway, recent: RecentMoves, migration: Migration, migrated: Migrated) -> None:
    recent.note(migration, migrated, gateway.clock.epoch_ms())
    gateway.notify("migrated", migration, migrated)


def _migrator(gateway: ServiceGateway, type: str, means: GatewayMeans) -> tuple[PluginId, Migrator]:
    key = "rescheduling.migrators"
    made: tuple[PluginId, Migrator] = gateway.plugin("migrator", type, key, prepare=lambda each: each.prepare(means))
    return made


def _with_live_requests(plan: Plan, view: ClusterView) -> Plan:
    """The plan without migrations from instances where no request of this gateway runs, such as drained ones."""
    busy = {each.id for each in view.instances if each.requests}
    return Plan(migrations=tuple(each for each in plan.migrations if each.source in busy), dropped=plan.dropped)
