"""Responses that later requests continue."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from threading import Thread
from time import time
from typing import Any

import msgspec

from enginehouse import InvalidRequest, NotFound
from enginehouse_protocols.bounds import check_body
from enginehouse_protocols.responses.request import Item

_log = logging.getLogger(__name__)

_items = msgspec.json.Decoder(list[Item]).decode
_FILE = "responses.sqlite"
_WAIT_S = 0.25
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
PRAGMA wal_autocheckpoint = 0;
PRAGMA wal_checkpoint;
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, used REAL, size INTEGER, response BLOB, conversation BLOB);
CREATE INDEX IF NOT EXISTS responses_used ON responses (used);
DROP INDEX IF EXISTS responses_size;
CREATE TABLE IF NOT EXISTS total (size INTEGER);
INSERT INTO total SELECT (SELECT total(size) FROM responses) WHERE NOT EXISTS (SELECT * FROM total);
CREATE TRIGGER IF NOT EXISTS kept AFTER INSERT ON responses BEGIN UPDATE total SET size = size + new.size; END;
CREATE TRIGGER IF NOT EXISTS dropped AFTER DELETE ON responses BEGIN UPDATE total SET size = size - old.size; END;
COMMIT;
"""
_MOST_LOGGED = 4_000_000
"""After so many bytes the log is moved into the file. That takes some ms, so a thread does it."""
_OF_A_CHANGE = 16_384
"""The bytes that a change of a few pages adds to the log."""


class StoredResponses:
    """The responses that were used last, with their conversations, in ``most`` bytes of JSON together.

    Their ids are random: who knows one may use it. They are in memory until ``open``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._database: sqlite3.Connection | None = None
        self._path: Path | None = None
        self._logged = 0

    def open(self, folder: Path) -> None:
        """Keep responses in a file of ``folder``, where all processes of the gateway and the next one find them."""
        if not self._most:
            return
        path = folder / _FILE
        try:
            path.touch(mode=0o600)
            self._database = _connect(str(path))
            self._path = path
        except (OSError, sqlite3.Error) as error:
            _log.warning("Responses are kept by each process alone: %s cannot be used: %s", path, error)

    def keep(self, response: dict[str, Any], asked: Sequence[Item]) -> None:
        """Keep a whole ``response`` to the conversation ``asked``."""
        said, conversation = msgspec.json.encode(response), msgspec.json.encode([*asked, *response["output"]])
        entry = response["id"], time(), len(said) + len(conversation), said, conversation
        try:
            with self._open() as database:
                database.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?)", entry)
                (size,) = database.execute("SELECT size FROM total").fetchone()
                while size > self._most:
                    oldest, freed = database.execute("SELECT id, size FROM responses ORDER BY used LIMIT 1").fetchone()
                    database.execute("DELETE FROM responses WHERE id = ?", (oldest,))
                    size -= freed
        except sqlite3.Error as error:
            _log.warning("A response is not kept: %s", error)
        self._log_grows(entry[2])

    def conversation(self, id: str) -> list[Item]:
        """All items up to the end of a response.

        Raises ``InvalidRequest`` for one that is not kept, ``BodyTooLarge`` for too many items.
        """
        if not self._most:
            raise InvalidRequest(
                "The gateway keeps no responses: send the whole conversation in 'input', or set "
                "plugins.responses.stored",
                param="previous_response_id",
            )
        found = self._find("conversation", id)
        if found is None:
            raise InvalidRequest(
                f"The gateway does not keep the response '{id}' (any more): send the whole conversation in 'input'",
                param="previous_response_id",
            )
        self._change("UPDATE responses SET used = ? WHERE id = ?", time(), id)
        check_body(found)
        return _items(found)

    def response(self, id: str) -> bytes:
        """The JSON of a response. Raises ``NotFound``."""
        found = self._find("response", id)
        if found is None:
            raise NotFound(f"The gateway keeps no response '{id}'")
        return found

    def delete(self, id: str) -> None:
        """Forget a response. Raises ``NotFound``."""
        if not self._change("DELETE FROM responses WHERE id = ?", id):
            raise NotFound(f"The gateway keeps no response '{id}'")

    def _find(self, what: str, id: str) -> bytes | None:
        """A column of a response; ``None`` if it is not kept."""
        try:
            found = self._open().execute(f"SELECT {what} FROM responses WHERE id = ?", (id,)).fetchone()
        except sqlite3.Error as error:
            _log.warning("A response cannot be read: %s", error)
            return None
        return found[0] if found is not None else None

    def _change(self, statement: str, *values: object) -> int:
        """The number of responses that a statement has changed."""
        try:
            with self._open() as database:
                return database.execute(statement, values).rowcount
        except sqlite3.Error as error:
            _log.warning("A response cannot be changed: %s", error)
            return 0
        finally:
            self._log_grows(_OF_A_CHANGE)

    def _log_grows(self, size: int) -> None:
        self._logged += size
        if self._path is not None and self._logged > _MOST_LOGGED:
            self._logged = 0
            Thread(target=_move_log, args=(self._path,), daemon=True).start()

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = _connect(":memory:")
        return self._database


def _move_log(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path)) as database:
            database.executescript("PRAGMA synchronous = OFF; PRAGMA wal_checkpoint;")
    except sqlite3.Error as error:
        _log.warning("The log of %s grows: %s", path, error)


def _connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
    database.executescript(_SCHEMA)
    return database
