"""The migrator ``llumlet`` of a replay, without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from enginehouse import (
    CannotContinue,
    ClusterView,
    Migrated,
    Migration,
    MigrationMeans,
    Migrator,
    NotFound,
    RequestError,
    VirtualRequest,
    migration_budget,
    select_requests,
)
from enginehouse_sim.simulator.llumlet.candidates import movable_requests
from enginehouse_sim.simulator.replay.moves import Moves, PlayedRequest
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.server.telemetry.migration_slots import MAX_MIGRATIONS


class PlayedLlumlet(Migrator):
    """Chooses requests of the source and copies them to the destination, as llumlets do. ``engines``: by backend."""

    def __init__(self, moves: Moves, engines: Mapping[str, PlayedEngine], means: MigrationMeans) -> None:
        self._moves = moves
        self._engines = engines
        self._means = means

    def why_not(self, migration: Migration, view: ClusterView) -> str:
        known = {each.id for each in view.instances}
        return "" if {migration.source, migration.destination} <= known else "the view does not have both instances"

    async def migrate(self, migration: Migration) -> Migrated:
        source, turns = self._engines[migration.source], asyncio.Semaphore(MAX_MIGRATIONS)

        async def move(request: VirtualRequest) -> bool:
            async with turns:
                return await self._move(request, migration.destination)

        chosen = self._chosen(migration, source)
        has_moved = await asyncio.gather(*(move(request) for request in chosen))
        moved = tuple(request.id for request, done in zip(chosen, has_moved, strict=True) if done)
        if not moved:
            raise NotFound(f"The llumlet of '{migration.source}' moved nothing: No request could be moved.")
        return Migrated(moved=moved)

    def _chosen(self, migration: Migration, source: PlayedEngine) -> list[VirtualRequest]:
        owners = {each.id: source.subject(each.id) for each in movable_requests(source.state)}
        if migration.requests:
            return [owner for owner in owners.values() if owner is not None and owner.id in migration.requests]
        budget = migration_budget(migration.rule, migration.value, source.state.constants.token_capacity)
        requests = [each for each in movable_requests(source.state) if owners[each.id] is not None]
        return [owners[name] for name in select_requests(requests, migration.rule, migration.order, budget)]

    async def _move(self, request: VirtualRequest, backend: str) -> bool:
        played: PlayedRequest = request.subject
        try:
            moved = await self._moves.copy(played, self._engines[backend])
        except CannotContinue:
            return False
        if not moved:
            return False
        try:
            await self._means.join(request.id, backend, played.engine_id)
        except RequestError:
            self._means.moved_by_engine(request.id, backend)
        return True
