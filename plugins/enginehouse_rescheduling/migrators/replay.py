"""The migrator ``replay``."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from enginehouse import EnginehouseError, Migrator
from enginehouse.rescheduling import ClusterView, Migrated, Migration, MigrationMeans
from enginehouse_kit.selection import migration_budget, select_requests
from enginehouse_rescheduling.migrators.instance_index import InstanceIndex


class Replay(Migrator):
    """Makes the destination continue each stream from its tokens. It needs nothing of the engines."""

    class Config(msgspec.Struct, frozen=True):
        """``at_once``: the most streams that move together, whose texts the destination then reads at the same time."""

        at_once: Annotated[int, msgspec.Meta(ge=1)] = 16

    _means: MigrationMeans

    def __init__(self, config: Config | None = None) -> None:
        self._config = config or self.Config()
        self._index = InstanceIndex()

    def prepare(self, means: MigrationMeans) -> None:
        self._means = means

    def why_not(self, migration: Migration, view: ClusterView) -> str:
        known = self._index.of(view).keys()
        return "" if {migration.source, migration.destination} <= known else "the view does not have both instances"

    async def migrate(self, migration: Migration) -> Migrated:
        """Move the chosen streams, many at once. A stream that cannot be moved stays at its source."""
        chosen = migration.requests or self._chosen(migration)
        if not chosen:
            return Migrated(found_none=True)
        turns = asyncio.Semaphore(self._config.at_once)
        problems = await asyncio.gather(*(self._move(request, migration.destination, turns) for request in chosen))
        refused = {request: why for request, why in zip(chosen, problems, strict=True) if why}
        return Migrated(moved=tuple(request for request in chosen if request not in refused), refused=refused)

    def _chosen(self, migration: Migration) -> list[str]:
        total = self._means.kv_tokens(migration.source)
        budget = migration_budget(migration.rule, migration.value, total)
        return select_requests(self._means.live(migration.source), migration.rule, migration.order, budget)

    async def _move(self, request: str, destination: str, turns: asyncio.Semaphore) -> str:
        """Move one request when it is its turn; returns why it stays, or nothing."""
        async with turns:
            try:
                await self._means.move(request, destination)
            except EnginehouseError as error:
                return str(error)
        return ""
