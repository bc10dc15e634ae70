"""The migrator ``llumlet`` of a replay, without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from enginehouse import (
    ClusterView,
    Migrated,
    Migration,
    MigrationMeans,
    Migrator,
    RequestError,
    migration_budget,
    select_requests,
)
from enginehouse_sim.simulator.llumlet.candidates import movable_requests
from enginehouse_sim.simulator.replay.moves import Moves
from enginehouse_sim.simulator.replay.played_answer import PlayedAnswer
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.server.telemetry.migration_slots import MAX_MIGRATIONS


class PlayedLlumlet(Migrator):
    """Chooses requests of the source and copies them to the destination, as llumlets do. ``engines``: by backend."""

    def __init__(self, moves: Moves, engines: Mapping[str, PlayedEngine]) -> None:
        self._moves = moves
        self._engines = engines
        self._means: MigrationMeans

    def prepare(self, means: MigrationMeans) -> None:
        self._means = means

    def why_not(self, migration: Migration, view: ClusterView) -> str:
        known = {each.id for each in view.instances}
        return "" if {migration.source, migration.destination} <= known else "the view does not have both instances"

    async def migrate(self, migration: Migration) -> Migrated:
        source, turns = self._engines[migration.source], asyncio.Semaphore(MAX_MIGRATIONS)

        async def move(answer: PlayedAnswer) -> str:
            async with turns:
                return await self._move(answer, migration.destination)

        chosen = self._chosen(migration, source)
        names = [_id(answer) for answer in chosen]
        problems = await asyncio.gather(*(move(answer) for answer in chosen))
        refused = {name: why for name, why in zip(names, problems, strict=True) if why}
        moved = tuple(name for name in names if name not in refused)
        return Migrated(moved=moved, refused=refused, found_none=not chosen)

    def _chosen(self, migration: Migration, source: PlayedEngine) -> list[PlayedAnswer]:
        requests = movable_requests(source.state)
        answers = {each.id: found.owner for each in requests if (found := source.answer(each.id)) is not None}
        if migration.requests:
            return [answer for answer in answers.values() if _id(answer) in migration.requests]
        budget = migration_budget(migration.rule, migration.value, source.state.constants.token_capacity)
        known = [each for each in requests if each.id in answers]
        return [answers[name] for name in select_requests(known, migration.rule, migration.order, budget)]

    async def _move(self, answer: PlayedAnswer, backend: str) -> str:
        """Move one request. Returns why it stays, or nothing."""
        if why := await self._moves.copy(answer, self._engines[backend]):
            return why
        try:
            await self._means.join(_id(answer), backend, answer.id)
        except RequestError:
            self._means.moved_by_engine(_id(answer), backend)
        return ""


def _id(answer: PlayedAnswer) -> str:
    """The gateway's id of the request."""
    assert answer.client is not None
    return str(answer.client.number)
