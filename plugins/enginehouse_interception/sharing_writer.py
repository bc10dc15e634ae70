"""Writes an answer to its client, and to other requests that have joined it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from enginehouse import RequestError
from enginehouse.errors import UpstreamError
from enginehouse.middleware import (
    ClientLeft,
    EngineMemory,
    GuardRefused,
    HeldAnswer,
    PassingWriter,
    ResponseWriter,
    lines_without,
    status_of,
)

_MOST_KEPT: Final = 1 << 20
"""Bytes of an answer that are kept for requests that join it, and so many that wait for one slow client of several."""
_ERROR: Final = b"event: error\ndata: "
_object = msgspec.json.Decoder(dict[str, Any]).decode
_NOT_SHARED: Final = (b"x-request-id:", b"x-ratelimit-", b"x-enginehouse-overhead-us:")


class Sharer(Protocol):
    """The exchange of a shared answer."""

    def pace(self, *, stopped: bool) -> None:
        """Read no more of the answer, because all clients are slow; or read on."""

    def ended(self, *, joined: bool) -> None:
        """The answer has ended; ``joined``: it was that of another request."""

    def lost(self) -> None:
        """The answer that the request has joined is gone before it has begun."""

    def abandoned(self) -> None:
        """The last client has left."""


class SharingWriter(PassingWriter):
    """Sends an answer to its own client, and to the writers of the requests that have joined it.

    A slow client does not stop an answer that others read: what it has not read waits, and if that is too much, its
    connection breaks.

    - ``form``: the path, and whether a stream is asked for: requests that join are alike in it.
    - ``source``: the writer whose answer this one gets, if its request has joined another one.
    - ``own_lines``: the header lines of its own that it adds.
    - ``error``: the one with which the answer ended.
    """

    __slots__ = (
        "_gone",
        "_head",
        "_interrupted",
        "_lag",
        "_log",
        "_over",
        "_paused",
        "_readers",
        "_sharer",
        "_stopped",
        "error",
        "form",
        "own_lines",
        "source",
    )

    def __init__(self, writer: ResponseWriter, memory: EngineMemory) -> None:
        super().__init__(writer)
        self._sharer: Sharer | None = None
        self._readers: list[SharingWriter] = []
        self._head: tuple[int, bytes, int | None] | None = None
        self._log: HeldAnswer | None = HeldAnswer(memory, "answer", _MOST_KEPT)
        self._lag = HeldAnswer(memory, "answer", _MOST_KEPT)
        self._gone = self._paused = self._stopped = self._interrupted = self._over = False
        self.form: tuple[str, bool] | None = None
        self.source: SharingWriter | None = None
        self.own_lines = b""
        self.error: RequestError | None = None

    def open(self, sharer: Sharer, form: tuple[str, bool]) -> None:
        """Let requests of the same ``form`` join."""
        self._sharer, self.form = sharer, form

    @property
    def begun(self) -> bool:
        """Whether the answer has begun."""
        return self._head is not None

    @property
    def status(self) -> int:
        """The status that the client got."""
        return self._head[0] if self._head is not None else 0

    # --- from the request's own exchange

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        if self.source is not None and status >= 300:
            self.leave()
        if self._head is None:
            self._begin(status, lines, length)
        elif status >= 300:  # the answer that the request has joined has begun, or heartbeats have
            self._interrupted = True

    def write(self, chunk: bytes) -> None:
        self._send(chunk)

    def finish(self, chunk: bytes) -> None:
        self.leave()
        if self._interrupted and not (self.form is not None and self.form[1]):
            self._abort(joined=False)
        else:
            self._end(chunk, joined=False)

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        if self._gone:  # later: the engine's attempt ends as served
            error = ClientLeft("The client left; the answer went on for requests that had joined it")
            asyncio.get_running_loop().call_soon(then, error)
        else:
            super().settle(then)

    def unread(self) -> int:
        return len(self._lag.body) + self._writer.unread()

    def abort(self) -> None:
        self.leave()
        self._abort(joined=False)

    # --- from the client

    def pause(self) -> None:
        self._paused = True
        self._pace()

    def resume(self) -> None:
        self._paused = False
        if waiting := self._lag.take():
            self._writer.write(waiting)
        self._pace()

    def client_left(self) -> bool:
        """Send nothing to the client any more. Returns whether others still read the answer."""
        self._gone = True
        self._lag.drop()
        if not self._readers:
            return False
        self._pace()
        return True

    def close(self) -> None:
        """The request ends without an answer: what has joined it goes its own way."""
        self.leave()
        self._lose_readers()
        self._close(joined=False)

    # --- joining

    @property
    def is_open(self) -> bool:
        """Whether the whole answer can be sent to others."""
        return not self._over and (self._head is None or self._log is not None)

    def join(self, reader: SharingWriter) -> None:
        """Send the answer, which ``is_open``, to ``reader`` too, from its beginning."""
        log = self._log
        reader._drop_log()
        reader.source = self
        self._readers.append(reader)
        if self._head is not None:
            reader._begin(*reader._own(self._head))
            if log is not None and log.body:
                reader._send(bytes(log.body))
        self._pace()

    def root(self) -> SharingWriter:
        """The writer whose answer this one gets in the end: its own, or that of the request that it has joined."""
        writer = self
        while writer.source is not None:
            writer = writer.source
        return writer

    def leave(self) -> None:
        """Get no more of the answer of another request."""
        source, self.source = self.source, None
        if source is None or self not in source._readers:
            return
        source._readers.remove(self)
        if source._readers or not source._gone:
            source._pace()
        elif source._sharer is not None:
            source._sharer.abandoned()

    # --- inside

    def _begin(self, status: int, lines: bytes, length: int | None) -> None:
        if self._head is not None:  # a heartbeat has begun the stream
            self._interrupted = status >= 300
            return
        self._head = head = (status, lines, length)
        if not self._gone:
            self._writer.start(status, lines, length)
        for each in list(self._readers):
            each._begin(*each._own(head))

    def _own(self, head: tuple[int, bytes, int | None]) -> tuple[int, bytes, int | None]:
        status, lines, length = head
        return status, lines_without(lines, _NOT_SHARED) + self.own_lines, length

    def _send(self, chunk: bytes) -> None:
        log = self._log
        if log is not None and (len(log.body) + len(chunk) > _MOST_KEPT or log.add(chunk)):
            self._drop_log()
        if self._gone:
            pass
        elif self._lag.body or (self._paused and (self._readers or self.source is not None)):
            if self._lag.add(chunk):
                self._give_up_client()
        else:
            self._writer.write(chunk)
        for each in list(self._readers):
            each._send(chunk)

    def _end(self, chunk: bytes, *, joined: bool) -> None:
        self.source = None
        if self._interrupted:  # by an error, which is an event now
            chunk = _ERROR + chunk + b"\n\n"
        waiting = self._lag.take()
        if not self._gone:
            self._writer.finish(waiting + chunk)
        readers, self._readers = self._readers, []
        if readers and self.error is None:
            self.error = _error_in(self.status, chunk)
        for each in readers:
            each.error = self.error
            each._end(chunk, joined=True)
        self._close(joined=joined)

    def _abort(self, *, joined: bool) -> None:
        self._lag.drop()
        if not self._gone:
            self._writer.abort()
        self._lose_readers()
        self._close(joined=joined)

    def _give_up_client(self) -> None:
        """Break the connection of a client that is too slow."""
        self._gone = True
        self._writer.abort()
        if self.source is not None and not self._readers:
            self.error = ClientLeft("The client read too slowly")
            self.leave()
            self._close(joined=True)

    def _lose_readers(self) -> None:
        readers, self._readers = self._readers, []
        for each in readers:
            each.source = None
            if each.begun:
                each.error = UpstreamError("The answer that the request has joined broke off")
                each._abort(joined=True)
            elif each._sharer is not None:
                each._sharer.lost()

    def _close(self, *, joined: bool) -> None:
        if not self._over:
            self._over = True
            self._drop_log()
            if self._sharer is not None:
                self._sharer.ended(joined=joined)

    def _drop_log(self) -> None:
        if self._log is not None:
            self._log.drop()
            self._log = None

    @property
    def _is_stuck(self) -> bool:
        return (self._gone or self._paused) and all(each._is_stuck for each in self._readers)

    def _pace(self) -> None:
        """Have the answer read if any client reads it."""
        stopped = self._is_stuck and (not self._gone or bool(self._readers))
        if self._over or stopped == self._stopped:
            return
        self._stopped = stopped
        if self.source is not None:
            self.source._pace()
        elif self._sharer is not None:
            self._sharer.pace(stopped=stopped)


def _error_in(status: int, end: bytes) -> RequestError | None:
    """The error with which an answer has ended; ``end``: its last piece."""
    if status < 400 and _ERROR not in end:
        return None
    try:
        error = _object(end.rpartition(_ERROR)[2].strip()).get("error")
    except (ValueError, RecursionError):
        error = None
    fields = error if isinstance(error, dict) else {}
    code = str(fields.get("code") or UpstreamError.code)
    return GuardRefused(status if status >= 400 else status_of(code), code, str(fields.get("message") or ""))
