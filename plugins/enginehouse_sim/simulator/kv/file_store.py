"""A store of blocks in a file, for the engines of several processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from enginehouse import ConfigError
from enginehouse_sim.simulator.kv.external_store import BlockStore

_WAIT_S = 10.0
"""Seconds to wait while another process writes."""


class FileStore(BlockStore):
    """The blocks of one ``model`` in an SQLite database, up to ``capacity`` of all models together.

    Raises ``ConfigError`` for a file that cannot be used.
    """

    def __init__(self, path: Path, capacity: int, model: str) -> None:
        self._capacity = capacity
        self._model = model
        try:
            self._database = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            self._database.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
                "CREATE TABLE IF NOT EXISTS blocks (used INTEGER PRIMARY KEY AUTOINCREMENT, model, hash);"
                "CREATE UNIQUE INDEX IF NOT EXISTS contents ON blocks (model, hash)"
            )
        except sqlite3.Error as error:
            raise ConfigError(f"cannot be used as a store of blocks: {error}", file=str(path)) from None

    def count_leading(self, hashes: Sequence[int]) -> int:
        stored = self._stored(hashes)
        return next((index for index, content in enumerate(hashes) if content not in stored), len(hashes))

    def put(self, hashes: Sequence[int]) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        rows = [(self._model, _bytes(content)) for content in reversed(hashes)]
        database.executemany("INSERT OR REPLACE INTO blocks (model, hash) VALUES (?, ?)", rows)
        [(number,)] = database.execute("SELECT count(*) FROM blocks")
        if number > self._capacity:
            oldest = "SELECT used FROM blocks ORDER BY used LIMIT ?"
            database.execute(f"DELETE FROM blocks WHERE used IN ({oldest})", (number - self._capacity,))
        database.execute("COMMIT")

    def use(self, hashes: Sequence[int]) -> None:
        stored = self._stored(hashes)
        self.put([content for content in hashes if content in stored])

    def close(self) -> None:
        self._database.close()

    def _stored(self, hashes: Sequence[int]) -> set[int]:
        query = "SELECT 1 FROM blocks WHERE model = ? AND hash = ?"
        ask = self._database.execute
        return {content for content in hashes if ask(query, (self._model, _bytes(content))).fetchone()}


def _bytes(content: int) -> bytes:
    """A hash as bytes, because SQLite's 64-bit integers have a sign."""
    return content.to_bytes(8, "little")
