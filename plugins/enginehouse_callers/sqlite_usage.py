"""The usage store ``sqlite``: a file in the folder of the gateway's state."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from msgspec.structs import astuple

from enginehouse.callers import AuditEntry, UsageRow
from enginehouse_kit.usage_stores import UsageStore

_FILE = "usage.sqlite"
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS usage (
  hour INTEGER, key TEXT, model TEXT, user TEXT, requests INTEGER, failed INTEGER, tokens_in INTEGER,
  tokens_cached INTEGER, tokens_out INTEGER, seconds REAL, cost REAL, wh REAL DEFAULT 0,
  PRIMARY KEY (hour, key, model, user)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (
  id INTEGER PRIMARY KEY, time REAL, who TEXT, address TEXT, act TEXT, status INTEGER, outcome TEXT
);
"""
_COLUMNS = UsageRow.__struct_fields__
"""Always named: a newer version may have added one to the file."""
_FIGURES = _COLUMNS[4:]
_ADD = f"""
INSERT INTO usage ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" for _ in _COLUMNS)}) ON CONFLICT DO UPDATE SET
  {", ".join(f"{name} = {name} + excluded.{name}" for name in _FIGURES)}
"""
_NOTE = "INSERT INTO audit (time, who, address, act, status, outcome) VALUES (?, ?, ?, ?, ?, ?)"
_USAGE = f"SELECT {', '.join(_COLUMNS)} FROM usage WHERE hour >= ? AND hour < ?"
_SUMS = ", ".join(f"sum({name})" for name in _FIGURES)
_DAY_S = 86400


class SqliteUsage(UsageStore):
    """Keeps sums by hour. The write-ahead log keeps what was added even if the process is killed a moment later."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._connection: sqlite3.Connection | None = None

    def prepare(self, folder: Path) -> None:
        self._folder = folder

    def add(self, rows: Sequence[UsageRow], entries: Sequence[AuditEntry]) -> None:
        with self._open() as connection:
            connection.executemany(_ADD, map(astuple, rows))
            connection.executemany(_NOTE, map(astuple, entries))

    def usage(self, since: float, until: float) -> Sequence[UsageRow]:
        with closing(self._open().execute(_USAGE, (since, until))) as found:
            return [UsageRow(*values) for values in found]

    def sums(
        self, since: float, until: float, by: Sequence[str], key: str | None = None, most: int | None = None
    ) -> Sequence[UsageRow]:
        hour = "hour" if "hour" in by else f"hour / {_DAY_S} * {_DAY_S}" if "day" in by else "NULL"
        names = ", ".join([hour, *(name if name in by else "NULL" for name in ("key", "model", "user"))])
        asked = f"SELECT {names}, {_SUMS} FROM usage WHERE hour >= ? AND hour < ?"
        values: list[object] = [since, until]
        if key is not None:
            asked += " AND key = ?"
            values.append(key)
        asked += " GROUP BY 1, 2, 3, 4 LIMIT ?"
        with closing(self._open().execute(asked, (*values, -1 if most is None else most))) as found:
            return [UsageRow(*values) for values in found]

    def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        asked = "SELECT time, who, address, act, status, outcome FROM audit WHERE time >= ? ORDER BY id DESC LIMIT ?"
        with closing(self._open().execute(asked, (since, most))) as found:
            return [AuditEntry(*row) for row in found]

    def forget(self, before: float) -> None:
        with self._open() as connection:
            connection.execute("DELETE FROM usage WHERE hour < ?", (before,))
            connection.execute("DELETE FROM audit WHERE time < ?", (before,))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        """The connection, which one thread uses."""
        if self._connection is None:
            assert self._folder is not None
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / _FILE
            path.touch(mode=0o600)
            connection = sqlite3.connect(path, check_same_thread=False, timeout=5.0)
            connection.executescript(_SCHEMA)
            if "wh" not in [column[1] for column in connection.execute("PRAGMA table_info(usage)")]:  # of 0.1.0
                connection.execute("ALTER TABLE usage ADD COLUMN wh REAL DEFAULT 0")
            self._connection = connection
        return self._connection
