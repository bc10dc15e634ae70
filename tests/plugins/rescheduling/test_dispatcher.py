from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.domain.plugin_id import PluginId
from enginehouse.errors import UpstreamError
from enginehouse_kit.rescheduling import ClusterView, Migrated, Migration, Migrator, Plan
from enginehouse_kit.testing import FakeServiceGateway
from enginehouse_rescheduling.dispatcher import GatewayMeans, MigrationDispatcher, MigrationRecord
from enginehouse_rescheduling.placed_requests import PlacedRequests
from tests.support.cluster_views import instance, view

VIEW = view(*(instance(name) for name in "abcd"))
KEY = ("NUM_REQ", "SR")


class Scripted(Migrator):
    """Answers as it is told, by source."""

    def __init__(self, results: dict[str, Any], why: Any = "") -> None:
        self.results = results
        self.why = why
        self.running: set[str] = set()
        self.all_running = asyncio.Event()
        self.cancelled: list[str] = []

    def why_not(self, migration: Migration, view: ClusterView) -> str:
        answer: str = self.why
        return answer

    async def migrate(self, migration: Migration) -> Migrated:
        self.running.add(migration.source)
        if self.running == set(self.results):
            self.all_running.set()
        result = self.results[migration.source]
        try:
            await (self.all_running if result != "never" else asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(migration.source)
            raise
        if isinstance(result, Exception):
            raise result
        found: Migrated = result
        return found


class Scene:
    """A dispatcher, and what it told."""

    def __init__(self, *migrators: Migrator, timeout: float = 5.0) -> None:
        self.told: list[tuple[Migration, Migrated]] = []
        self.it = MigrationDispatcher(
            [(PluginId("migrator", f"m{place}", "test"), migrator) for place, migrator in enumerate(migrators)],
            timeout=timeout,
            on_end=lambda migration, migrated: self.told.append((migration, migrated)),
            clock=SYSTEM_CLOCK,
        )

    async def run(self, *ends: str) -> dict[str, MigrationRecord]:
        await self.it.carry_out(Plan(migrations=tuple(map(move, ends))), VIEW)
        return {record.source: record for record in self.it.records}


def move(ends: str) -> Migration:
    return Migration(policy="p", source=ends[0], destination=ends[1], rule="NUM_REQ", order="SR", value=1)


async def test_all_migrations_run_at_once_and_a_failure_stops_no_other() -> None:
    moved, refused = Migrated(moved=("r",)), Migrated(refused={"s": "it wants log probabilities"})
    scene = Scene(Scripted({"a": moved, "b": UpstreamError("it is gone"), "c": refused}))
    records = await scene.run("ad", "bd", "cd")

    assert {name: (each.moved, each.refused, each.error) for name, each in records.items()} == {
        "a": (("r",), {}, None),
        "b": ((), {}, "it is gone"),
        "c": ((), {"s": "it wants log probabilities"}, None),
    }
    assert scene.it.counts.all == {KEY: 3}
    assert scene.it.counts.failed == {KEY: 2}
    assert sorted((migration.source, migrated.moved) for migration, migrated in scene.told) == [
        ("a", ("r",)),
        ("b", ()),
        ("c", ()),
    ]


async def test_a_migration_without_a_request_to_move_is_counted_as_such() -> None:
    scene = Scene(Scripted({"a": Migrated(found_none=True)}))
    await scene.run("ad")

    assert scene.it.counts.all == scene.it.counts.empty == {KEY: 1}
    assert scene.it.counts.failed == {}


async def test_a_migration_that_takes_too_long_is_cancelled() -> None:
    migrator = Scripted({"a": "never", "b": Migrated(moved=("r",))})
    records = await Scene(migrator, timeout=0.05).run("ad", "bd")

    assert records["a"].error == "not done within 0.05 s (rescheduling.migrate_timeout)"
    assert records["b"].moved == ("r",)
    await asyncio.sleep(0)
    assert migrator.cancelled == ["a"]


async def test_what_a_migration_moved_before_it_was_cancelled_or_failed_is_recorded() -> None:
    gateway = FakeServiceGateway()
    means = GatewayMeans(gateway, PlacedRequests(gateway))

    class Partly(Scripted):
        async def migrate(self, migration: Migration) -> Migrated:
            moves = [means.move(f"{migration.source}{number}", migration.destination) for number in range(2)]
            await asyncio.gather(*moves)
            return await super().migrate(migration)

    scene = Scene(Partly({"a": "never", "b": UpstreamError("it is gone")}), timeout=0.05)
    records = await scene.run("ad", "bd")

    assert {name: each.moved for name, each in records.items()} == {"a": ("a0", "a1"), "b": ("b0", "b1")}
    assert scene.it.counts.failed == {KEY: 2}


async def test_the_first_migrator_that_can_does_it() -> None:
    cannot, can = Scripted({}, why="a has no llumlet"), Scripted({"a": Migrated(moved=("r",))})
    records = await Scene(cannot, can).run("ad")

    assert records["a"].migrator == "m1"


async def test_without_a_migrator_that_can_the_reasons_are_told() -> None:
    records = await Scene(Scripted({}, why="a has no llumlet"), Scripted({}, why="no")).run("ad")

    assert (records["a"].migrator, records["a"].error) == (None, "m0: a has no llumlet; m1: no")


@pytest.mark.parametrize(
    ("migrator", "error"),
    [
        (Scripted({"a": ["r"]}), "returned ['r'] from migrate, which is no Migrated"),
        (Scripted({"a": Migrated(moved=(1,))}), "returned a wrong Migrated from migrate: Expected `str`, got `int`"),  # type: ignore[arg-type]
        (Scripted({"a": Migrated(refused={"r": OSError()})}), "returned a wrong Migrated from migrate: "),  # type: ignore[dict-item]
        (Scripted({"a": RuntimeError("secret")}), "failed with RuntimeError"),
        (Scripted({}, why=None), "returned None from why_not, which is not text"),
    ],
)
async def test_a_migrator_that_fails_is_named(migrator: Migrator, error: str) -> None:
    records = await Scene(migrator).run("ad")

    assert error in (records["a"].error or "")
    assert "m0" in (records["a"].error or "")
    assert "secret" not in (records["a"].error or "")


async def test_a_migration_that_moved_but_does_not_name_requests_is_no_failure() -> None:
    scene = Scene(Scripted({"a": Migrated()}))
    await scene.run("ad")

    assert scene.it.counts.failed == {}
