"""What callers use is summed up, and written even if that fails at first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from sqlite3 import OperationalError
from threading import Event, get_ident
from typing import Any, Protocol

import pytest

from enginehouse.callers import AuditEntry, UsageRow
from enginehouse.config.auth import PriceSettings
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request_facts import RequestFacts
from enginehouse.errors import PluginFailed
from enginehouse_callers import SqliteUsage
from enginehouse_callers.prices import Prices
from enginehouse_callers.usage_keeper import UsageKeeper
from enginehouse_callers.usage_meter import UsageMeter
from enginehouse_kit.testing import request_record
from enginehouse_kit.usage_stores import UsageStore
from tests.support.fake_clock import StoppedClock
from tests.support.request_facts import facts_of

NOW = 1_700_000_000.0
STORE = PluginId("usage_store", "acme")


class MakeKeeper(Protocol):
    """Makes a keeper whose store is in the test's folder."""

    def __call__(self, clock: StoppedClock, store: SqliteUsage | None = None, keep: float = 0.0) -> UsageKeeper: ...


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[MakeKeeper]:
    with ExitStack() as stores:

        def make(clock: StoppedClock, store: SqliteUsage | None = None, keep: float = 0.0) -> UsageKeeper:
            meter = UsageMeter(clock, Prices({"big*": PriceSettings(input=1.0, cached=0.5, output=3.0)}))
            store = store or SqliteUsage()
            store.prepare(tmp_path)
            stores.callback(store.close)
            made = UsageKeeper(meter, keep, clock)
            made.use(store, STORE)
            return made

        yield make


def record(caller: str = "alice", **more: Any) -> RequestFacts:
    facts: dict[str, Any] = {
        "tokens_in": 100,
        "tokens_cached": 40,
        "tokens_out": 10,
        "arrived": 0.0,
        "sent": 1.0,
        "ended": 3.0,
    }
    return facts_of(request_record(caller=caller, **{**facts, **more}))


async def test_sums_are_there_at_once_and_after_a_kill(keeper: MakeKeeper) -> None:
    first = keeper(StoppedClock(NOW))
    for caller in ("alice", "bob", "alice"):
        first.meter.add(record(caller), "big-1", 0)
    (alice, bob) = sorted(await first.usage(0, NOW), key=lambda row: row.key or "")
    assert (alice.requests, alice.tokens_in, alice.tokens_cached, alice.tokens_out) == (2, 200, 80, 20)
    assert (alice.seconds, alice.failed) == (4.0, 0)
    assert alice.cost == pytest.approx(2 * (60 + 20 + 30) / 1e6)
    assert (bob.key, bob.model, bob.requests) == ("bob", "big-1", 1)
    second = keeper(StoppedClock(NOW))  # the first one was not closed
    second.meter.add(record("bob"), "big-1", 0)
    assert sum(row.requests for row in await second.usage(0, NOW)) == 4


async def test_what_an_engine_did_not_count_is_estimated(keeper: MakeKeeper) -> None:
    it = keeper(StoppedClock(NOW))
    uncounted: dict[str, Any] = {"tokens_in": None, "tokens_cached": None, "tokens_out": None}
    it.meter.add(record(**uncounted, status=502, events=7, first_byte=2.0), "m", 33)
    it.meter.add(record(**uncounted, status=400, sent=None), "m", 33)
    (row,) = await it.usage(0, NOW)
    assert (row.requests, row.failed, row.tokens_in, row.tokens_out, row.cost) == (2, 2, 33, 7, 0)


class FullDisk(SqliteUsage):
    full = True

    def add(self, rows: Sequence[UsageRow], entries: Sequence[AuditEntry]) -> None:
        if self.full:
            raise OSError("no space left on device")
        super().add(rows, entries)


async def test_a_full_disk_is_a_warning_and_nothing_is_lost(
    keeper: MakeKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    store = FullDisk()
    it = keeper(StoppedClock(NOW), store)
    entry = AuditEntry(NOW, "ops", "127.0.0.1", "POST /api/reload", 200)
    for _ in range(3):
        it.meter.add(record(), "m", 0)
        it.note(entry)
        await it.write()
    assert caplog.text.count("no space left on device") == 1
    store.full = False
    it.meter.add(record(), "m", 0)
    (row,) = await it.usage(0, NOW)
    assert row.requests == 4
    assert list(await it.audit(0, 10)) == [entry] * 3
    assert "is stored again" in caplog.text


class Exits(SqliteUsage):
    def add(self, rows: Sequence[UsageRow], entries: Sequence[AuditEntry]) -> None:
        raise SystemExit("no disk")

    def usage(self, since: float, until: float) -> Sequence[UsageRow]:
        raise SystemExit("no disk")

    sums = UsageStore.sums

    def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        raise KeyError("no such table")


async def test_whatever_a_store_raises_names_it_and_ends_no_gateway(
    keeper: MakeKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    it = keeper(StoppedClock(NOW), Exits())
    it.meter.add(record(), "m", 0)
    for read in (it.usage(0, NOW), it.audit(0, 10)):
        with pytest.raises(PluginFailed, match="usage_store 'acme'"):
            await asyncio.ensure_future(read)  # SystemExit ends a loop from a task
    assert "Usage cannot be stored, and is kept in memory: SystemExit: no disk" in caplog.text


async def test_what_is_too_old_is_forgotten(keeper: MakeKeeper) -> None:
    clock = StoppedClock(NOW)
    it = keeper(clock, keep=86400.0)
    it.meter.add(record(), "m", 0)
    await it.write()
    clock.now += 2 * 86400
    it.meter.add(record("bob"), "m", 0)
    assert [row.key for row in await it.usage(0, clock.now)] == ["bob"]


async def test_what_is_used_besides_is_kept_only_where_a_store_takes_it(keeper: MakeKeeper) -> None:
    row = UsageRow(3600, "ann", "m", "", wh=1.5)
    kept, lost = (
        keeper(StoppedClock(NOW)),
        UsageKeeper(UsageMeter(StoppedClock(NOW), Prices({})), 0.0, StoppedClock(NOW)),
    )
    for each in (kept, lost):
        each.add([row])
    assert [each.wh for each in await kept.usage(0, 7200)] == [1.5]
    assert lost.meter.take() == []


async def test_without_a_store_the_last_acts_are_remembered() -> None:
    it = UsageKeeper(UsageMeter(StoppedClock(NOW), Prices({})), 0, StoppedClock(NOW))
    entries = [AuditEntry(NOW + n, "", "127.0.0.1", "POST /unload", 200) for n in range(3)]
    for each in entries:
        it.note(each)
    assert list(await it.audit(NOW + 1, 1)) == [entries[2]]
    assert list(await it.usage(0, NOW)) == []


def test_rows_that_are_put_back_stay_as_they_are() -> None:
    meter = UsageMeter(StoppedClock(NOW), Prices({}))
    rows = [UsageRow(3600, "alice", "m", "u", requests=1) for _ in range(2)]
    meter.put_back(rows)
    assert [row.requests for row in rows] == [1, 1]
    assert [row.requests for row in meter.take()] == [2]


def test_end_users_of_an_hour_are_bounded() -> None:
    meter = UsageMeter(StoppedClock(NOW), Prices({}), most_users=2)
    for user in ("ann", "ben", "cy", "dee", "ann"):
        meter.add(record(user=user), "m", 0)
    assert {row.user: row.requests for row in meter.take()} == {"ann": 2, "ben": 1, "other": 2}


class HeldStore(SqliteUsage):
    """A store whose file another program locks until ``unlock``. It notes which threads use it.

    ``gives_up``: its first write fails then, because it took too long.
    """

    def __init__(self, gives_up: bool) -> None:
        super().__init__()
        self.gives_up = gives_up
        self.adding, self.unlock = Event(), Event()
        self.closed_while_adding = False
        self.threads: set[int] = set()

    def add(self, rows: Sequence[UsageRow], entries: Sequence[AuditEntry]) -> None:
        self.threads.add(get_ident())
        self.adding.set()
        self.unlock.wait()
        gives_up, self.gives_up = self.gives_up, False
        if not gives_up:
            super().add(rows, entries)
        self.adding.clear()
        if gives_up:
            raise OperationalError("database is locked")

    def close(self) -> None:
        self.threads.add(get_ident())
        self.closed_while_adding |= self.adding.is_set()
        super().close()


@pytest.mark.parametrize("gives_up", [False, True])
async def test_an_end_while_the_store_writes_loses_nothing(tmp_path: Path, gives_up: bool) -> None:
    it = UsageKeeper(UsageMeter(StoppedClock(NOW), Prices({})), 0, StoppedClock(NOW))
    store = HeldStore(gives_up)
    store.prepare(tmp_path)
    it.use(store, STORE)
    it.meter.add(record(), "m", 0)
    writing = asyncio.create_task(it.write())
    await asyncio.to_thread(store.adding.wait)
    it.meter.add(record(), "m", 0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    closing = asyncio.create_task(it.close())
    asyncio.get_running_loop().call_later(0.05, store.unlock.set)
    await closing
    assert not store.closed_while_adding
    assert len(store.threads) == 1
    other = SqliteUsage()
    other.prepare(tmp_path)
    (row,) = other.usage(0, NOW)
    other.close()
    assert row.requests == 2


async def test_a_full_disk_keeps_a_bounded_number_of_rows(keeper: MakeKeeper) -> None:
    store = FullDisk()
    it = keeper(StoppedClock(NOW), store)
    it.meter.put_back([UsageRow(0, "alice", "m", f"user-{number}", requests=1) for number in range(30_000)])
    store.full = False
    (row,) = await it.usage(0, NOW)
    assert (row.user, row.requests) == ("other", 30_000)


class BusyAtFirst(SqliteUsage):
    """Cannot write at its first try."""

    tries = 0

    def add(self, rows: Sequence[UsageRow], entries: Sequence[AuditEntry]) -> None:
        self.tries += 1
        if self.tries == 1:
            raise OSError("busy")
        super().add(rows, entries)


async def test_an_end_writes_again_what_could_not_be_written(tmp_path: Path) -> None:
    it = UsageKeeper(UsageMeter(StoppedClock(NOW), Prices({})), 0, StoppedClock(NOW))
    store = BusyAtFirst()
    store.prepare(tmp_path)
    it.use(store, STORE)
    it.meter.add(record(), "m", 0)
    await it.close()
    other = SqliteUsage()
    other.prepare(tmp_path)
    (row,) = other.usage(0, NOW)
    other.close()
    assert (row.requests, store.tries) == (1, 2)
