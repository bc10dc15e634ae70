"""Responses that later requests continue."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from enginehouse import InvalidRequest, RequestError
from enginehouse.errors import NotFound
from enginehouse_protocols.fields import check_body
from enginehouse_protocols.responses.request import Item

_log = logging.getLogger(__name__)

T = TypeVar("T")
_items = msgspec.json.Decoder(list[Item]).decode
_AGAIN_S: Final = 0.25
"""After so long, what could not be written is tried again."""
_LOOKS: Final = 6
_FIRST_PAUSE_S: Final = 0.02
"""The worker that made a response may still be writing it when its client comes to another worker. Each pause between
looks is twice as long as the one before."""
_DELETES: Final = 20
"""Tries of a deletion, ``_AGAIN_S`` apart."""
_MOST_USES: Final = 1000
"""Ids whose time of use waits for the next write."""
_MOST_QUOTED: Final = 100
"""Characters of an id."""
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


class _Output(msgspec.Struct):
    output: list[Item]


_output = msgspec.json.Decoder(_Output).decode


class StoreLocked(RequestError, status=503, code="overloaded"):
    """Another program has locked the file of the kept responses."""


def not_kept(id: str) -> InvalidRequest:
    """The error for a response that cannot be continued."""
    return InvalidRequest(
        f"The gateway does not keep the response '{id[:_MOST_QUOTED]}' (any more): send the whole conversation in "
        "'input'",
        param="previous_response_id",
    )


class StoredResponses:
    """The responses that were used last, with their conversations, in ``most`` bytes of JSON together.

    A response belongs to the ``owner`` that made it: nobody else finds it. One thread reads and writes the file, so
    nothing on the event loop waits for it. While another program has locked the file, the responses of this process
    wait in memory, where they are found too, in at most ``most`` bytes. ``file``: its name.
    """

    def __init__(self, most: int, file: str = "responses.sqlite") -> None:
        self._most = most
        self._file = ResponseFile(most, file)
        self._thread = ThreadPoolExecutor(1, "responses")
        self._unwritten: dict[str, KeptResponse] = {}
        self._used: dict[str, float] = {}
        self._write: asyncio.Future[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    def open(self, folder: Path) -> None:
        """Keep responses in a file of ``folder``, where all processes of the gateway and the next one find them."""
        if self._most:
            self._file.open(folder)

    def keep(self, response: dict[str, Any], asked: Sequence[Item], owner: str = "") -> None:
        """Keep a whole ``response`` to the conversation ``asked``. Does not wait for the file."""
        said, conversation = msgspec.json.encode(response), msgspec.json.encode([*asked, *response["output"]])
        self._unwritten[response["id"]] = KeptResponse(response["id"], owner, time(), said, conversation)
        room, count = self._most, len(self._unwritten)
        for kept in reversed([*self._unwritten.values()]):
            if kept.size > room:
                del self._unwritten[kept.id]
            else:
                room -= kept.size
        if len(self._unwritten) < count:
            _log.warning("Some responses are not kept: they came faster than they could be written, or are too large")
        self._write_soon()

    async def conversation(self, id: str, owner: str = "") -> list[Item]:
        """All items up to the end of a response.

        Raises ``InvalidRequest`` for one that is not kept, ``BodyTooLarge`` for too many items.
        """
        if not self._most:
            raise InvalidRequest(
                "The gateway keeps no responses: send the whole conversation in 'input', or set "
                "plugins.responses.stored",
                param="previous_response_id",
            )
        found = await self._found(id, owner)
        if found is None:
            raise not_kept(id)
        if len(self._used) < _MOST_USES:
            self._used[id] = time()
            self._write_soon()
        check_body(found.conversation)
        return _items(found.conversation)

    async def has(self, id: str, owner: str = "") -> bool:
        """Whether a response is kept."""
        return self._most > 0 and await self._found(id, owner) is not None

    async def response(self, id: str, owner: str = "") -> bytes:
        """The JSON of a response. Raises ``NotFound``."""
        return (await self._kept(id, owner)).response

    async def asked(self, id: str, owner: str = "") -> list[Item]:
        """The items of the conversation before a response. Raises ``NotFound``, ``BodyTooLarge``."""
        kept = await self._kept(id, owner)
        check_body(kept.conversation)
        items = _items(kept.conversation)
        return items[: len(items) - len(_output(kept.response).output)]

    async def _kept(self, id: str, owner: str) -> KeptResponse:
        if (found := await self._found(id, owner)) is None:
            raise NotFound(f"The gateway keeps no response '{id[:_MOST_QUOTED]}'")
        return found

    async def delete(self, id: str, owner: str = "") -> None:
        """Forget a response, on disk too. Raises ``NotFound``, or ``StoreLocked``."""
        await self._kept(id, owner)
        self._unwritten.pop(id, None)
        for _ in range(_DELETES):
            try:
                await self._run(lambda: self._file.delete(id, owner))
            except sqlite3.Error as error:
                problem = error
                await asyncio.sleep(_AGAIN_S)
                continue
            if not self._file.is_clean:
                self._later()
            return
        raise StoreLocked(f"The response '{id}' cannot be deleted now: {problem}", retry_after=5)

    async def _found(self, id: str, owner: str) -> KeptResponse | None:
        """A response of the owner; ``None`` if it is not kept."""
        problem: sqlite3.Error | None = None
        for look in range(_LOOKS if self._file.is_shared else 1):
            if look:
                await asyncio.sleep(_FIRST_PAUSE_S * 2 ** (look - 1))
            if (kept := self._unwritten.get(id)) is not None:
                return kept if kept.owner == owner else None
            try:
                if (found := await self._run(lambda: self._file.find(id, owner))) is not None:
                    return found
                problem = None
            except sqlite3.Error as error:  # such as the lock of a process that makes the file just now
                problem = error
        if problem is not None:
            _log.warning("A response cannot be read: %s", problem)
        return None

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _write_soon(self) -> None:
        if self._write is None and self._again is None:
            entries, used = [*self._unwritten.values()], {**self._used}
            job = asyncio.get_running_loop().run_in_executor(self._thread, self._file.write, entries, used)
            self._write = job
            job.add_done_callback(lambda job: self._written(job, entries, used))

    def _written(self, job: asyncio.Future[None], entries: Sequence[KeptResponse], used: dict[str, float]) -> None:
        self._write = None
        if job.cancelled():
            return
        if (error := job.exception()) is not None:
            _log.warning("Responses cannot be written now: %s", error)
            self._later()
            return
        for kept in entries:
            if self._unwritten.get(kept.id) is kept:
                del self._unwritten[kept.id]
        for id in used:
            if self._used.get(id) == used[id]:
                del self._used[id]
        if not self._file.is_clean:
            self._later()
        elif self._unwritten or self._used:
            self._write_soon()

    def _later(self) -> None:
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        self._write_soon()


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
