"""Keeps files, batches and what became of their lines. SQLite's write-ahead log survives a killed process."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from enginehouse import InvalidRequest
from enginehouse.errors import NotFound, Overloaded
from enginehouse_batches.input_file import InputLine, body_of
from enginehouse_batches.objects import ENDED, Batch, BatchSettings, Status, StoredFile, answered, new_id

_SCHEMA: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS files (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, purpose TEXT, size INTEGER, expires INTEGER,
  data BLOB
);
CREATE TABLE IF NOT EXISTS batches (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, owner TEXT, ended INTEGER, completed INTEGER DEFAULT 0,
  failed INTEGER DEFAULT 0, data BLOB
);
CREATE INDEX IF NOT EXISTS open_batches ON batches (ended, seq);
CREATE INDEX IF NOT EXISTS batches_of_owners ON batches (owner, ended, seq);
CREATE TABLE IF NOT EXISTS lines (
  batch TEXT, number INTEGER, custom_id TEXT, model TEXT, start INTEGER, length INTEGER, served INTEGER,
  outcome BLOB, PRIMARY KEY (batch, number)
) WITHOUT ROWID;
"""
_ADD_LINE: Final = "INSERT INTO lines (batch, number, custom_id, model, start, length) VALUES (?, ?, ?, ?, ?, ?)"
_FORGET_OLDEST: Final = """
DELETE FROM batches WHERE owner = ? AND ended = 1 AND seq <=
  (SELECT seq FROM batches WHERE owner = ? AND ended = 1 ORDER BY seq DESC LIMIT 1 OFFSET ?)
"""
_MOST_ENDED: Final = 10_000
"""The most ended batches of a caller that are kept: one that fails at once costs its caller nothing."""
_OUTPUTS: Final = ((1, "output"), (0, "error"))
"""What ``lines.served`` is in which file."""
P = ParamSpec("P")
T = TypeVar("T")


class CountedBatch(NamedTuple):
    """A batch, and how many of its lines were served or not."""

    batch: Batch
    completed: int
    failed: int


class OpenLine(NamedTuple):
    """A line without an outcome."""

    number: int
    model: str


class Store:
    """Files and batches in ``folder``. Every method may block; one thread uses it at a time."""

    def __init__(self, folder: Path, settings: BatchSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._connection: sqlite3.Connection
        self._lock: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open it. Raises ``OSError`` or ``sqlite3.Error``."""
        (self._folder / "files").mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / "batches.sqlite"
        path.touch(mode=0o600)
        self._connection = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Close it, and let another process run batches."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._connection.close()

    def may_run(self) -> bool:
        """Whether this process, and no other one, runs batches: one of two during an upgrade."""
        if self._lock is None:
            lock = sqlite3.connect(self._folder / "running.sqlite", check_same_thread=False, timeout=0.0)
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                lock.close()
                return False
            self._lock = lock
        return True

    # --- files

    def add_file(self, owner: str, name: str, content: BinaryIO, expires_in: int | None, now: int) -> StoredFile:
        """Keep a client's file. Raises ``InvalidRequest`` or ``Overloaded`` if there is no room for it."""
        size = content.seek(0, os.SEEK_END)
        content.seek(0)
        [(count,)] = self._connection.execute("SELECT count(*) FROM files WHERE owner = ?", (owner,))
        if count >= self._settings.max_files:
            raise InvalidRequest(f"There are {count} files already (max_files): delete some")
        self._check_room(size)
        kept = min(expires_in or self._settings.keep, self._settings.keep)
        file = StoredFile(
            id=new_id("file-"),
            owner=owner,
            filename=name,
            purpose="batch",
            bytes=size,
            created_at=now,
            expires_at=now + int(kept),
        )
        try:
            with self._new_content(file.id) as target:
                shutil.copyfileobj(content, target)
            with self._connection as connection:
                self._add_row(connection, file)
        except BaseException:  # such as a full disk: what is there of it would keep it full
            self.content(file.id).unlink(missing_ok=True)
            raise
        return file

    def file(self, owner: str, id: str) -> StoredFile:
        """One file. Raises ``NotFound``."""
        for (data,) in self._connection.execute("SELECT data FROM files WHERE id = ? AND owner = ?", (id, owner)):
            return msgspec.json.decode(data, type=StoredFile)
        raise NotFound(f"No such File object: {id}", param="id")

    def files(
        self, owner: str, purpose: str | None, after: str | None, most: int, *, oldest_first: bool
    ) -> tuple[list[StoredFile], bool]:
        """Files from the one that follows ``after``, of one or any purpose, and whether there are more."""
        asked = "SELECT data FROM files WHERE owner = ? AND coalesce(?, purpose) = purpose"
        rows, more = self._page("files", asked, [owner, purpose], after, most, oldest_first=oldest_first)
        return [msgspec.json.decode(data, type=StoredFile) for (data,) in rows], more

    def delete_file(self, owner: str, id: str) -> None:
        """Delete a file. Raises ``NotFound``, or ``InvalidRequest`` if a batch still reads it."""
        self.file(owner, id)
        for each in self.open_batches():
            if each.batch.input_file_id == id:
                raise InvalidRequest(f"'{each.batch.id}' still reads this file: cancel it, or wait until it has ended")
        with self._connection as connection:
            connection.execute("DELETE FROM files WHERE id = ?", (id,))
        self.content(id).unlink(missing_ok=True)

    def content(self, id: str) -> Path:
        """Where the content of a file is."""
        return self._folder / "files" / id

    # --- batches

    def add_batch(self, batch: Batch) -> None:
        """Keep a new batch.

        Raises ``NotFound`` without its file, ``InvalidRequest`` for too many batches, and ``Overloaded`` if there is no
        room for its results.
        """
        self.file(batch.owner, batch.input_file_id)
        self._check_room(0)
        asked = "SELECT count(*) FROM batches WHERE ended = 0 AND owner = ?"
        [(count,)] = self._connection.execute(asked, (batch.owner,))
        if count >= self._settings.max_batches:
            raise InvalidRequest(f"There are {count} unfinished batches already (max_batches)")
        with self._connection as connection:
            row = (batch.id, batch.owner, 0, msgspec.json.encode(batch))
            connection.execute("INSERT INTO batches (id, owner, ended, data) VALUES (?, ?, ?, ?)", row)
            connection.execute(_FORGET_OLDEST, (batch.owner, batch.owner, _MOST_ENDED))

    def batch(self, id: str, owner: str | None = None) -> CountedBatch:
        """One batch, of ``owner`` or of anyone. Raises ``NotFound``."""
        asked = "SELECT data, completed, failed FROM batches WHERE id = ? AND coalesce(?, owner) = owner"
        for row in self._connection.execute(asked, (id, owner)):
            return _counted(row)
        raise NotFound(f"No such Batch object: {id}", param="id")

    def batches(self, owner: str | None, after: str | None, most: int) -> tuple[list[CountedBatch], bool]:
        """The newest batches, of ``owner`` or of all, and whether there are more."""
        asked = "SELECT data, completed, failed FROM batches WHERE coalesce(?, owner) = owner"
        rows, more = self._page("batches", asked, [owner], after, most, oldest_first=False)
        return [_counted(row) for row in rows], more

    def open_batches(self) -> list[CountedBatch]:
        """Those that have not ended, oldest first."""
        asked = "SELECT data, completed, failed FROM batches WHERE ended = 0 ORDER BY seq"
        return [_counted(row) for row in self._connection.execute(asked)]

    def move(self, batch: Batch, was: Status) -> Batch:
        """Keep a batch as it is now, unless its status is no longer what it ``was``. Returns what it is."""
        found = self.batch(batch.id).batch
        if found.status != was:
            return found
        with self._connection as connection:
            self._save(connection, batch)
        return batch

    def cancel(self, id: str, owner: str | None, now: int) -> CountedBatch:
        """Have a batch cancelled. Raises ``NotFound``, or ``InvalidRequest`` if it has ended."""
        found = self.batch(id, owner)
        if found.batch.has_ended or found.batch.status == "finalizing":
            raise InvalidRequest(f"Cannot cancel a batch with status '{found.batch.status}'")
        if found.batch.status == "cancelling":
            return found
        batch = msgspec.structs.replace(found.batch, status="cancelling", cancelling_at=now)
        return found._replace(batch=self.move(batch, found.batch.status))

    # --- lines

    def begin(self, batch: Batch, lines: Sequence[InputLine]) -> Batch:
        """Keep the lines of a batch that begins, in one step with it, unless it was cancelled. Returns what it is."""
        found = self.batch(batch.id).batch
        if found.status != "validating":
            return found
        with self._connection as connection:
            connection.executemany(_ADD_LINE, [(batch.id, *line) for line in lines])
            self._save(connection, batch)
        return batch

    def open_lines(self, batch: str) -> list[OpenLine]:
        """The lines without an outcome, in their order."""
        asked = "SELECT number, model FROM lines WHERE batch = ? AND served IS NULL ORDER BY number"
        return [OpenLine(*row) for row in self._connection.execute(asked, (batch,))]

    def line(self, batch: Batch, number: int) -> bytes:
        """The body of a line."""
        asked = "SELECT start, length FROM lines WHERE batch = ? AND number = ?"
        [(start, length)] = self._connection.execute(asked, (batch.id, number))
        with self.content(batch.input_file_id).open("rb") as file:
            file.seek(start)
            return body_of(file.read(length))

    def finish_line(self, batch: str, number: int, request: str, status: int, body: bytes) -> None:
        """Keep the answer to a line. The first one stays."""
        served = 200 <= status < 300
        outcome = answered(request, status, body)
        with self._connection as connection:
            changed = connection.execute(
                "UPDATE lines SET served = ?, outcome = ? WHERE batch = ? AND number = ? AND served IS NULL",
                (served, outcome, batch, number),
            )
            if changed.rowcount:
                column = "completed" if served else "failed"
                connection.execute(f"UPDATE batches SET {column} = {column} + 1 WHERE id = ?", (batch,))

    def finish(self, batch: Batch, unfinished: bytes | None, now: int) -> Batch:
        """Write the results of a batch into files, in one step with its end.

        ``unfinished``: what stands in place of an outcome of the other lines; ``None`` leaves them out.
        """
        found: dict[str, StoredFile] = {}
        for served, kind in _OUTPUTS:
            file = self._write_output(batch, served, kind, unfinished if not served else None, now)
            if file is not None:
                found[f"{kind}_file_id"] = file
        batch = msgspec.structs.replace(batch, **{name: each.id for name, each in found.items()})
        with self._connection as connection:
            for each in found.values():
                self._add_row(connection, each)
            if unfinished is not None:
                asked = "SELECT count(*) FROM lines WHERE batch = ? AND served IS NULL"
                [(left,)] = connection.execute(asked, (batch.id,))
                connection.execute("UPDATE batches SET failed = failed + ? WHERE id = ?", (left, batch.id))
            connection.execute("DELETE FROM lines WHERE batch = ?", (batch.id,))
            self._save(connection, batch)
        return batch

    # --- time

    def forget(self, now: int) -> None:
        """Delete what has expired, and contents that belong to no file."""
        used = {each.batch.input_file_id for each in self.open_batches()}
        with self._connection as connection:
            found = connection.execute("SELECT id FROM files WHERE expires <= ?", (now,))
            expired = [id for (id,) in found if id not in used]
            connection.executemany("DELETE FROM files WHERE id = ?", [(id,) for id in expired])
            ended = connection.execute("SELECT data FROM batches WHERE ended = 1 ORDER BY seq LIMIT 1000").fetchall()
            old = [msgspec.json.decode(data, type=Batch) for (data,) in ended]
            before = now - self._settings.keep
            connection.executemany("DELETE FROM batches WHERE id = ?", [(b.id,) for b in old if b.created_at < before])
            kept = {id for (id,) in connection.execute("SELECT id FROM files")}
        for id in expired:
            self.content(id).unlink(missing_ok=True)
        for path in (self._folder / "files").iterdir():
            if path.name not in kept and path.stat().st_mtime < now - 3600:  # newer ones may be about to be kept
                path.unlink(missing_ok=True)

    # --- inside

    def _check_room(self, size: int) -> None:
        [(used,)] = self._connection.execute("SELECT coalesce(sum(size), 0) FROM files")
        if used + size > self._settings.max_storage:
            raise Overloaded("There is no room for more files (max_storage): delete some, or try again later")

    def _page(
        self, table: str, asked: str, values: list[object], after: str | None, most: int, *, oldest_first: bool
    ) -> tuple[list[Any], bool]:
        sign, order = (">", "ASC") if oldest_first else ("<", "DESC")
        if after is not None:
            asked += f" AND seq {sign} (SELECT seq FROM {table} WHERE id = ?)"
            values.append(after)
        rows = self._connection.execute(f"{asked} ORDER BY seq {order} LIMIT ?", (*values, most + 1)).fetchall()
        return rows[:most], len(rows) > most

    def _new_content(self, id: str) -> BinaryIO:
        return os.fdopen(os.open(self.content(id), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _add_row(self, connection: sqlite3.Connection, file: StoredFile) -> None:
        row = (file.id, file.owner, file.purpose, file.bytes, file.expires_at, msgspec.json.encode(file))
        asked = "INSERT INTO files (id, owner, purpose, size, expires, data) VALUES (?, ?, ?, ?, ?, ?)"
        connection.execute(asked, row)

    def _save(self, connection: sqlite3.Connection, batch: Batch) -> None:
        values = (msgspec.json.encode(batch), batch.status in ENDED, batch.id)
        connection.execute("UPDATE batches SET data = ?, ended = ? WHERE id = ?", values)

    def _write_output(
        self, batch: Batch, served: int, kind: str, unfinished: bytes | None, now: int
    ) -> StoredFile | None:
        """A file with the outcomes of one kind; ``None`` if there are none."""
        id = new_id("file-")
        size = 0
        with self._new_content(id) as target:
            for line in self._outcomes(batch.id, served, unfinished):
                size += target.write(line)
        if not size:
            with suppress(OSError):
                self.content(id).unlink()
            return None
        return StoredFile(
            id=id,
            owner=batch.owner,
            filename=f"{batch.id}_{kind}.jsonl",
            purpose="batch_output",
            bytes=size,
            created_at=now,
            expires_at=now + int(self._settings.keep),
        )

    def _outcomes(self, batch: str, served: int, unfinished: bytes | None) -> Iterator[bytes]:
        asked = "SELECT custom_id, served, outcome FROM lines WHERE batch = ? ORDER BY number"
        for custom_id, was_served, outcome in self._connection.execute(asked, (batch,)):
            if was_served == served:
                yield _output_line(custom_id, outcome)
            elif was_served is None and unfinished is not None:
                yield _output_line(custom_id, unfinished)


def _output_line(custom_id: str, outcome: bytes) -> bytes:
    """A line of an output file. ``outcome``: a JSON object with ``response`` and ``error``."""
    return b'{"id":"%s","custom_id":%s,%s\n' % (
        new_id("batch_req_").encode(),
        msgspec.json.encode(custom_id),
        outcome[1:],
    )


def _counted(row: Sequence[Any]) -> CountedBatch:
    data, completed, failed = row
    return CountedBatch(msgspec.json.decode(data, type=Batch), completed, failed)


class Storage:
    """Calls methods of ``store`` one after the other."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._thread = ThreadPoolExecutor(1, "batches")

    async def call(self, method: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of a method of the store."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(method, *arguments, **named))

    async def close(self) -> None:
        """Close the store, after what was called before."""
        await self.call(self.store.close)
        self._thread.shutdown(wait=False)
