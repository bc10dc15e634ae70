"""Writes an answer through its filters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse import RequestError
from enginehouse.errors import UpstreamError
from enginehouse.middleware import (
    BatchedTransport,
    EngineMemory,
    HeldAnswer,
    OpenExchange,
    PassingWriter,
    ResponseWriter,
    lines_without,
)
from enginehouse_interception.answer_filters import AnswerFilters
from enginehouse_interception.sharing_writer import SharingWriter
from enginehouse_interception.stage import Stage

_JSON: Final = b"content-type: application/json\r\n"
_REPLACED: Final = (b"content-type:", b"content-length:")
_LARGEST: Final = 64 << 20
"""Bytes of a whole answer, or of one event of a stream."""
_LARGEST_ERROR: Final = 64 << 10
_MOST_QUOTED: Final = 500
"""Bytes of an error that filters see, if it is JSON and if it is not."""
_object = msgspec.json.Decoder(dict[str, Any]).decode
_LEFT: Final = {"message": "The client left", "code": "client_left"}
_BROKEN: Final = {"message": "The answer broke off", "code": "upstream_error"}


class FilteringWriter(PassingWriter):
    """Passes an answer through its filters, and then to ``writer``.

    The head leaves with the first piece, so that a refusal of the beginning has its own status. ``path``: the
    request's. ``listening``: the writers of streams whose filters want to know of silence; ``now`` is their clock.
    ``exchange`` brings the answer of a live request. ``paused``: the client is slow.

    ``_refused``: the error that has taken the place of a whole answer.
    """

    __slots__ = (
        "_chat",
        "_dropped",
        "_error",
        "_filters",
        "_head",
        "_held",
        "_is_error",
        "_last",
        "_listening",
        "_now",
        "_refused",
        "_streams",
        "_takes_whole",
        "_task",
        "_then",
        "exchange",
        "paused",
    )

    def __init__(
        self,
        writer: ResponseWriter,
        memory: EngineMemory,
        path: str,
        listening: MutableMapping[FilteringWriter, None],
        now: Callable[[], float],
    ) -> None:
        super().__init__(writer)
        self._chat = path.endswith("/chat/completions")
        self._listening = listening
        self._now = now
        self._held = HeldAnswer(memory, "answer", _LARGEST)
        self._filters: AnswerFilters | None = None
        self._head: tuple[int, bytes, int | None] | None = None
        self._streams = self._takes_whole = self._is_error = self.paused = False
        self._dropped = ""
        self._error = b""
        self._last = 0.0
        self._refused: RequestError | None = None
        self._task: asyncio.Task[None] | None = None
        self._then: Callable[[RequestError | None], None] | None = None
        self.exchange: OpenExchange | None = None

    def filter_with(self, stages: Sequence[Stage]) -> None:
        """Pass the answer through ``stages``, before it begins."""
        self._filters = AnswerFilters(stages, self._held, chat=self._chat) if stages else None

    def chunks_to(self) -> BatchedTransport | None:
        return None if self._filters is not None else self._writer.chunks_to()

    # --- from the exchange

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        filters = self._filters
        if filters is None:
            self._writer.start(status, lines, length)
            return
        self._is_error = status >= 300
        self._streams = not self._is_error and b"content-type: text/event-stream" in lines.lower()
        length = None if self._streams else length
        self._head = (status, lines, length)
        try:
            self._head = (status, filters.head(status, lines), length)
        except RequestError:
            if self._streams:
                raise
        if self._streams and filters.listens:
            self._last = self._now()
            self._listening[self] = None
        self._takes_whole = not self._is_error and (filters.takes_whole or filters.problem is not None)

    def write(self, chunk: bytes) -> None:
        filters = self._filters
        if filters is None:
            self._writer.write(chunk)
        elif self._streams:
            self._write(self._filtered(filters, chunk))
        elif self._takes_whole:
            self._hold(chunk)
        else:
            self._note_error(chunk)
            self._write(chunk)

    def finish(self, chunk: bytes) -> None:
        filters = self._filters
        if filters is None:
            self._writer.finish(chunk)
        elif filters.problem is not None and self._streams:
            self._end_with_problem(filters, filters.problem, chunk)
        elif self._streams:
            passed = self._filtered(filters, chunk, last=True)
            self._open()
            self._forget()
            self._writer.finish(passed)
        elif self._takes_whole:
            self._hold(chunk)
            self._decide(filters, self._held.take())
        else:
            self._note_error(chunk)
            self._open()
            self._writer.finish(chunk)
            if self._is_error:
                filters.broken(_error_in(self._error))
            self._forget()

    def fail(self, error: RequestError) -> None:
        """End an answer that no engine gives with ``error``, which a filter has raised."""
        assert self._filters is not None
        event = b"event: error\ndata: %s\n\n" % msgspec.json.encode(error.envelope())
        self._end_with_problem(self._filters, error, event)

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        if self._task is not None:
            self._then = then
        elif self._refused is not None:  # later: the engine's attempt ends as served
            asyncio.get_running_loop().call_soon(then, self._refused)
        else:
            super().settle(then)

    def abort(self) -> None:
        if self._filters is not None:
            self._filters.broken(_BROKEN)
        self.release()
        self._writer.abort()

    def release(self) -> None:
        """The client is gone: hold nothing of the answer any more."""
        self._then = None
        if self._task is not None:
            self._task.cancel()
        if self._filters is not None:
            self._filters.broken(_LEFT)
        self._forget()

    def tell_silence(self, now: float) -> None:
        """Tell filters how long the stream has been silent, and send what they make of that."""
        filters = self._filters
        if filters is None or self.paused or filters.problem is not None or filters.ended:
            return
        try:
            self._write(self._checked(*filters.silent(now - self._last)))
        except Exception as error:
            filters.fail(error)
            if self.exchange is not None:
                self.exchange.cancel(filters.problem)

    # --- inside

    def _filtered(self, filters: AnswerFilters, chunk: bytes, *, last: bool = False) -> bytes:
        """What passes of a piece of the stream. Raises what a filter raises, once what is before that is sent."""
        if self in self._listening and b"data:" in chunk:  # a heartbeat is silence too
            self._last = self._now()
        return self._checked(*filters.take(chunk, last=last))

    def _checked(self, passed: bytes, error: Exception | None) -> bytes:
        """What has ``passed``. Raises the ``error`` of a filter, once what is before it is sent."""
        if error is not None:
            self._write(passed)
            raise error
        return passed

    def _open(self) -> None:
        """Send the head, if that has not happened yet."""
        head, self._head = self._head, None
        if head is not None:
            self._writer.start(*head)

    def _write(self, chunk: bytes) -> None:
        if chunk:
            self._open()
            self._writer.write(chunk)

    def _end_with_problem(self, filters: AnswerFilters, problem: RequestError, event: bytes) -> None:
        """End a stream with the error of a filter: with ``event``, or with a response of its own."""
        self._note(problem)
        filters.broken(_object(msgspec.json.encode(problem.envelope()))["error"])
        self._forget()
        if self._head is not None:
            _, lines, _ = self._head
            self._send(problem.status, _with_json(lines), msgspec.json.encode(problem.envelope()))
        else:
            self._writer.finish(event)

    def _note(self, error: RequestError) -> None:
        """Let the records of requests that have joined say how the answer ended."""
        if isinstance(self._writer, SharingWriter):
            self._writer.error = error

    def _forget(self) -> None:
        self._listening.pop(self, None)
        if self._filters is not None:
            self._filters.release()

    def _note_error(self, chunk: bytes) -> None:
        if self._is_error:
            self._error = (self._error + chunk)[:_LARGEST_ERROR]

    def _hold(self, chunk: bytes) -> None:
        if not self._dropped and (why := self._held.add(chunk)):
            self._dropped = why
            self._held.drop()

    def _decide(self, filters: AnswerFilters, body: bytes, begin: int = 0) -> None:
        """Deliver what the stages from ``begin`` on make of a whole answer, now or later."""
        try:
            if filters.problem is not None:
                raise filters.problem
            if self._dropped:
                raise UpstreamError(f"The engine's answer was dropped before filters saw it: {self._dropped}")
            said = filters.whole(body, begin)
        except RequestError as error:
            self._refused = refused = error.with_traceback(None)
            self._note(refused)
            envelope = refused.envelope()
            filters.broken(envelope["error"])
            _, lines, _ = self._head or (0, b"", None)
            self._send(refused.status, _with_json(lines), msgspec.json.encode(envelope))
        else:
            if not isinstance(said, bytes):
                self._task = asyncio.ensure_future(self._wait(filters, *said))
                return
            filters.ended = True
            status, lines, _ = self._head or (200, _JSON, None)
            self._send(status, lines, said)
        self._forget()

    async def _wait(self, filters: AnswerFilters, said: Awaitable[bytes], begin: int) -> None:
        try:
            body = await said
        except RequestError as error:
            filters.problem, body = error, b""
        self._task = None
        self._decide(filters, body, begin)
        then = self._then
        if self._task is None and then is not None:
            self._then = None
            self.settle(then)

    def _send(self, status: int, lines: bytes, body: bytes) -> None:
        self._head = None
        self._writer.start(status, lines, len(body))
        self._writer.finish(body)


def _with_json(lines: bytes) -> bytes:
    return lines_without(lines, _REPLACED) + _JSON


def _error_in(body: bytes) -> Mapping[str, Any]:
    """The error object of an answer."""
    try:
        error = _object(body).get("error")
    except (ValueError, RecursionError):
        error = body[:_MOST_QUOTED].decode(errors="replace")
    return error if isinstance(error, dict) else {"message": str(error), "code": None}
