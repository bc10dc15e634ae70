"""The file of kept responses."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_log = logging.getLogger(__name__)

_WAIT_S: Final = 0.05
"""How long a statement waits for a lock. Whoever has it longer is tried again later, by the caller."""
_SCHEMA: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
PRAGMA secure_delete = ON;
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, used REAL, size INTEGER, response BLOB, conversation BLOB, owner TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS responses_used ON responses (used);
DROP INDEX IF EXISTS responses_size;
CREATE TABLE IF NOT EXISTS total (size INTEGER);
INSERT INTO total SELECT (SELECT total(size) FROM responses) WHERE NOT EXISTS (SELECT * FROM total);
CREATE TRIGGER IF NOT EXISTS kept AFTER INSERT ON responses BEGIN UPDATE total SET size = size + new.size; END;
CREATE TRIGGER IF NOT EXISTS dropped AFTER DELETE ON responses BEGIN UPDATE total SET size = size - old.size; END;
COMMIT;
"""
_ADD_OWNER: Final = "ALTER TABLE responses ADD COLUMN owner TEXT NOT NULL DEFAULT ''"
_MOST_LOGGED: Final = 4_000_000
"""A write-ahead log of more bytes is moved into the file."""


class KeptResponse(NamedTuple):
    """A response and its conversation, as JSON. ``owner``: the caller that made it; empty without keys."""

    id: str
    owner: str
    used: float
    response: bytes
    conversation: bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.response) + len(self.conversation)


class ResponseFile:
    """Responses in the SQLite file ``name``, in ``most`` bytes of JSON; in memory until ``open``. One thread uses it.

    Every method raises ``sqlite3.Error`` if the file is locked, or cannot be used. What is deleted or makes room is
    overwritten (``secure_delete``), and the write-ahead log with it as soon as nobody reads it. ``is_clean``: that was
    so the last time. ``is_shared``: other processes write it too.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._database: sqlite3.Connection | None = None
        self._path: Path | None = None
        self.is_clean = True

    @property
    def is_shared(self) -> bool:
        return self._path is not None

    def open(self, folder: Path) -> None:
        """Take the folder of the file, which is made when it is used."""
        self._path = folder / self._name

    def write(self, entries: Sequence[KeptResponse], used: Mapping[str, float]) -> None:
        """Keep ``entries`` and the times when others were ``used``. The least recently used ones make room."""
        with self._connected() as database:
            for each in entries:
                row = each.id, each.used, each.size, each.response, each.conversation, each.owner
                database.execute(
                    "INSERT OR REPLACE INTO responses (id, used, size, response, conversation, owner) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    row,
                )
            database.executemany("UPDATE responses SET used = ? WHERE id = ?", [(at, id) for id, at in used.items()])
            (size,) = database.execute("SELECT size FROM total").fetchone()
            while size > self._most:
                oldest, freed = database.execute("SELECT id, size FROM responses ORDER BY used LIMIT 1").fetchone()
                database.execute("DELETE FROM responses WHERE id = ?", (oldest,))
                self.is_clean = False
                size -= freed
        self._clean()

    def find(self, id: str, owner: str) -> KeptResponse | None:
        """A response of the owner; ``None`` if there is none."""
        row = (
            self._connected()
            .execute(
                "SELECT id, owner, used, response, conversation FROM responses WHERE id = ? AND owner = ?", (id, owner)
            )
            .fetchone()
        )
        return None if row is None else KeptResponse(*row)

    def delete(self, id: str, owner: str) -> None:
        """Forget a response of the owner."""
        with self._connected() as database:
            database.execute("DELETE FROM responses WHERE id = ? AND owner = ?", (id, owner))
        self.is_clean = False
        self._clean()

    def _clean(self) -> None:
        """Move the log into the file, if it is large or has what was deleted."""
        if self._path is None:
            self.is_clean = True
        elif not self.is_clean or _size(self._path.with_name(f"{self._name}-wal")) > _MOST_LOGGED:
            busy, _, _ = self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.is_clean = not busy

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            self._make()
            self._database = _connect(":memory:" if self._path is None else str(self._path))
        return self._database

    def _make(self) -> None:
        if self._path is not None:
            try:
                self._path.touch(mode=0o600)
            except OSError as error:
                _log.warning("Responses are kept by each process alone: %s cannot be used: %s", self._path, error)
                self._path = None


def _connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
    try:
        database.executescript(_SCHEMA)
        if not any(column[1] == "owner" for column in database.execute("PRAGMA table_info(responses)")):
            database.execute(_ADD_OWNER)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
