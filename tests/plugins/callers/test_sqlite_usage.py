"""The file of usage, also one that another version has made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from enginehouse.callers import UsageRow
from enginehouse_callers import SqliteUsage


def row(requests: int = 1, wh: float = 0.5) -> UsageRow:
    return UsageRow(3600, "ann", "m", "", requests=requests, wh=wh)


def change(folder: Path, statement: str) -> None:
    """Make a file in ``folder``, and change its tables by ``statement``."""
    store = SqliteUsage()
    store.prepare(folder)
    store.add([row()], [])
    store.close()
    with closing(sqlite3.connect(folder / "usage.sqlite")) as connection:
        connection.execute(statement)


def expect_that_it_adds(folder: Path, wanted: UsageRow) -> None:
    store = SqliteUsage()
    store.prepare(folder)
    store.add([row()], [])
    assert list(store.usage(0, 7200)) == [wanted]
    assert [(each.key, each.requests, each.wh) for each in store.sums(0, 7200, ("key",))] == [
        ("ann", wanted.requests, wanted.wh)
    ]
    store.close()


def test_a_newer_version_may_have_added_a_column(tmp_path: Path) -> None:
    change(tmp_path, "ALTER TABLE usage ADD COLUMN water REAL DEFAULT 0")
    expect_that_it_adds(tmp_path, row(2, 1.0))


def test_an_older_version_may_have_lacked_a_column(tmp_path: Path) -> None:
    change(tmp_path, "ALTER TABLE usage DROP COLUMN wh")
    expect_that_it_adds(tmp_path, row(2, 0.5))
