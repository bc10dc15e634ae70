"""Carries out all migrations of a plan at once."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar

import msgspec

from enginehouse import EnginehouseError
from enginehouse.drivers import EngineClient
from enginehouse.errors import NotFound
from enginehouse.rescheduling import InstanceAddress, RequestView
from enginehouse.runtime import Clock, PluginId, await_plugin, plugin_errors, run_within, wrong_result
from enginehouse.services import ServiceGateway
from enginehouse_kit.rescheduling import ClusterView, Migrated, Migration, Migrator, Plan
from enginehouse_rescheduling.placed_requests import PlacedRequests
from enginehouse_rescheduling.planner import MoveLimit

MOST_RECORDS = 1000
_SLICE = 20
"""Migrations to begin between two turns of the event loop: less than 1 ms of work."""

_moved: ContextVar[list[str]] = ContextVar("moved")
"""What the migration in progress has moved so far: a migrator that fails or is too slow reports nothing."""


def note_moved(request: str) -> None:
    """Note that ``request`` has moved, in a task of the migration that moved it."""
    _moved.get([]).append(request)


class MigrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A migration that ended, as ``GET /api/migrations`` shows it. ``time``: when it began, seconds since the epoch."""

    time: float
    policy: str
    source: str
    destination: str
    rule: str
    order: str
    value: float
    migrator: str | None
    """``None`` if no migrator could."""
    moved: tuple[str, ...]
    refused: dict[str, str]
    error: str | None
    duration_ms: float


class MigrationCounts:
    """How many migrations began, and how many of them failed or found nothing to move, by rule and order."""

    def __init__(self) -> None:
        self.all: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        self.empty: Counter[tuple[str, str]] = Counter()


class MigrationDispatcher:
    """Gives each migration to the first migrator that can, and at most ``timeout`` seconds.

    A migration that fails stops no other one, and is not repeated: the next round plans again. ``records``: the last
    migrations. ``counts``: all of them. ``on_end`` is called after each with its result.
    """

    def __init__(
        self,
        migrators: Sequence[tuple[PluginId, Migrator]],
        *,
        timeout: float,
        on_end: Callable[[Migration, Migrated], None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self.records: deque[MigrationRecord] = deque(maxlen=MOST_RECORDS)
        self.migrators = migrators
        self._timeout = timeout
        self.counts = MigrationCounts()
        self._on_end = on_end

    async def carry_out(self, plan: Plan, view: ClusterView) -> None:
        """Carry out all migrations of ``plan``, which was made for ``view``, and wait for all of them."""
        begun: list[asyncio.Future[None]] = []
        try:
            for place, migration in enumerate(plan.migrations):
                if place % _SLICE == 0:
                    await asyncio.sleep(0)
                begun.append(asyncio.ensure_future(self._carry_out(migration, view)))
            await asyncio.gather(*begun)
        finally:
            for each in begun:
                each.cancel()
            begun.clear()  # a failure refers to this frame, and its task to the failure

    async def _carry_out(self, migration: Migration, view: ClusterView) -> None:
        began_at, began = self._clock.epoch(), self._clock.now()
        plugin, migrated, error, moved = None, Migrated(), None, list[str]()
        _moved.set(moved)
        try:
            plugin, migrator = self._choose(migration, view)
            migrated = await run_within(self._timeout, self._migrate(plugin, migrator, migration))
        except TimeoutError:
            error = f"not done within {self._timeout:g} s (rescheduling.migrate_timeout)"
        except EnginehouseError as problem:
            error = str(problem)
        if error is not None:
            migrated = Migrated(moved=tuple(moved))
        self._count(migration, migrated, failed=error is not None)
        self.records.append(
            MigrationRecord(
                time=began_at,
                policy=migration.policy,
                source=migration.source,
                destination=migration.destination,
                rule=migration.rule,
                order=migration.order,
                value=migration.value,
                migrator=plugin.type if plugin else None,
                moved=migrated.moved,
                refused=dict(migrated.refused),
                error=error,
                duration_ms=round((self._clock.now() - began) * 1000, 1),
            )
        )
        self._on_end(migration, migrated)

    def _count(self, migration: Migration, migrated: Migrated, *, failed: bool) -> None:
        counts, selection = self.counts, (migration.rule, migration.order)
        counts.all[selection] += 1
        if failed or (migrated.refused and not migrated.moved):
            counts.failed[selection] += 1
        elif migrated.found_none:
            counts.empty[selection] += 1

    def _choose(self, migration: Migration, view: ClusterView) -> tuple[PluginId, Migrator]:
        """The first migrator that can. Raises ``NoMigrator`` with the reasons of all."""
        reasons = []
        for plugin, migrator in self.migrators:
            with plugin_errors(plugin):
                why = migrator.why_not(migration, view)
            if not isinstance(why, str):
                raise wrong_result(plugin, f"returned {why!r} from why_not, which is not text")
            if not why:
                return plugin, migrator
            reasons.append(f"{plugin.type}: {why}")
        raise NoMigrator("; ".join(reasons) or "rescheduling.migrators is empty")

    async def _migrate(self, plugin: PluginId, migrator: Migrator, migration: Migration) -> Migrated:
        migrated = await await_plugin(plugin, migrator.migrate, migration)
        if not isinstance(migrated, Migrated):
            raise wrong_result(plugin, f"returned {migrated!r} from migrate, which is no Migrated")
        try:
            return msgspec.convert(msgspec.to_builtins(migrated), Migrated)
        except (msgspec.ValidationError, TypeError) as error:
            raise wrong_result(plugin, f"returned a wrong Migrated from migrate: {error}") from None


class NoMigrator(EnginehouseError):
    """No configured migrator can move requests between two instances."""


class GatewayMeans:
    """The ``MigrationMeans`` of a gateway. An instance is a backend."""

    def __init__(self, gateway: ServiceGateway, live: PlacedRequests) -> None:
        self._gateway = gateway
        self._live = live
        self._limit = MoveLimit(gateway.clock.now)

    def live(self, instance: str) -> Sequence[RequestView]:
        return [self._limit.seen(request) for request in self._live.at(instance)]

    async def move(self, request: str, destination: str) -> None:
        self._limit.check(request)
        await self.join(request, destination, "")

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        await self._gateway.requests.move(request, destination, engine_request)
        self._note(request)

    def moved_by_engine(self, request: str, destination: str) -> None:
        self._note(request)
        self._live.note_move(request, destination)

    def _note(self, request: str) -> None:
        self._limit.note(request)
        note_moved(request)

    def engine(self, instance: str) -> EngineClient:
        return self._gateway.backends.client(instance)

    def address(self, instance: str) -> InstanceAddress:
        report = self._gateway.figures.reports.get(instance)
        if report is None:
            raise NotFound(f"There is no instance '{instance}' that reports figures")
        metadata = report.metadata
        return InstanceAddress(ip=metadata.ip, llumlet_port=metadata.llumlet_port, kvt_port=metadata.kvt_port)

    def kv_tokens(self, instance: str) -> int:
        report = self._gateway.figures.reports.get(instance)
        return report.status.num_total_gpu_tokens if report is not None else 0
