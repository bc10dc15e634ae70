"""The migrator ``llumlet`` of a replay, without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count

from enginehouse import RequestError
from enginehouse_kit.rescheduling import ClusterView, Migrated, Migration, MigrationMeans, Migrator
from enginehouse_kit.selection import migration_budget, select_requests
from enginehouse_sim.simulator.core.migration import MAX_MIGRATIONS, computed_tokens, copy_stages, movable_requests
from enginehouse_sim.simulator.replay.played_engine import PlayedEngine
from enginehouse_sim.simulator.replay.played_server import PlayedAnswer
from enginehouse_sim.simulator.steps.costs import KvTransfer

_ENDED = "it has ended"


class PlayedLlumlet(Migrator):
    """Chooses requests of the source and copies them to the destination, as llumlets do. ``engines``: by backend.

    ``begin_step`` begins a step of an engine that may be idle.
    """

    def __init__(
        self,
        engines: Mapping[str, PlayedEngine],
        now: Callable[[], float],
        begin_step: Callable[[PlayedEngine], None],
        transfer: KvTransfer,
    ) -> None:
        self._engines = engines
        self._now = now
        self._begin_step = begin_step
        self._transfer = transfer
        self._count = count(1)
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
        found = {each.id: source.answer(each.id) for each in requests}
        answers = {name: answer for name, answer in found.items() if isinstance(answer, PlayedAnswer)}
        if migration.requests:
            return [answer for answer in answers.values() if _id(answer) in migration.requests]
        budget = migration_budget(migration.rule, migration.value, source.state.constants.token_capacity)
        known = [each for each in requests if each.id in answers]
        return [answers[name] for name in select_requests(known, migration.rule, migration.order, budget)]

    async def _move(self, answer: PlayedAnswer, backend: str) -> str:
        """Move one request. Returns why it stays, or nothing."""
        if why := await self._copy(answer, self._engines[backend]):
            return why
        try:
            await self._means.join(_id(answer), backend, answer.id)
        except RequestError:
            self._means.moved_by_engine(_id(answer), backend)
        return ""

    async def _copy(self, moved: PlayedAnswer, destination: PlayedEngine) -> str:
        """Copy the KV while the request runs, then continue it at ``destination``. Returns why it stays, or nothing."""
        source, request = moved.engine, moved.engine.state.requests.get(moved.id)
        if request is None:
            return _ENDED
        if destination.refuses(request):
            return f"'{destination.instance.name}' has no room for it"
        with source.slots.outgoing.occupy(request.num_tokens), destination.slots.incoming.occupy(request.num_tokens):
            copied = await copy_stages(source.state, moved.id, self._transfer, asyncio.sleep)
            if not source.has(moved.id):
                return _ENDED
            computed = computed_tokens(request)
            id = f"{moved.id.partition('+')[0]}+{next(self._count)}"
            detached, answer = source.detach(moved.id, id)
            await asyncio.sleep(self._transfer.seconds(max(0, computed - copied)))
        moved.engine, moved.id = destination, id
        answer.has_moved = True
        destination.attach(detached, answer, self._now(), computed)
        self._begin_step(destination)
        return ""


def _id(answer: PlayedAnswer) -> str:
    assert answer.client is not None
    return str(answer.client.number)
