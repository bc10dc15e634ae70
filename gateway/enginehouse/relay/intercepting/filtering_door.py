"""The client's side of a request whose answer passes filters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import RequestError, UpstreamError
from enginehouse.interfaces.interceptors import Event
from enginehouse.relay.answers.held_answer import HeldAnswer
from enginehouse.relay.answers.passing_door import PassingDoor
from enginehouse.relay.door import Door, OpenExchange
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.events.plain_event import data_of
from enginehouse.relay.events.sse import is_whole, read_events
from enginehouse.relay.heads.headers import lines_without, read_lines
from enginehouse.relay.intercepting.sharing_door import SharingDoor
from enginehouse.relay.intercepting.stage import Stage
from enginehouse.relay.intercepting.stream_events import completed, encoded, events_of
from enginehouse.telemetry.plugin_failures import plugin_failed

_JSON: Final = b"content-type: application/json\r\n"
_REPLACED: Final = (b"content-type:", b"content-length:")
_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection"})
_DONE: Final = b"[DONE]"
_LARGEST: Final = 64 << 20
"""Bytes of a whole answer, or of one event."""
_LARGEST_ERROR: Final = 64 << 10
_MOST_QUOTED: Final = 500
"""Bytes of an error that filters see, if it is JSON and if it is not."""
_object = msgspec.json.Decoder(dict[str, Any]).decode
_LEFT: Final = {"message": "The client left", "code": "client_left"}
_BROKEN: Final = {"message": "The answer broke off", "code": "upstream_error"}


class FilteringDoor(PassingDoor):
    """Passes an answer through the filters of ``stages``, in their order, and then to ``door``.

    The head leaves with the first piece, so that a refusal of the beginning has its own status. ``path``: the
    request's. ``listening``: the doors of streams whose filters want to know of silence; ``now`` is their clock.
    ``exchange`` brings the answer of a live request. ``paused``: the client is slow.

    ``_problem``: the error that a filter has raised; the exchange then ends the answer with it. ``_refused``: the error
    that has taken the place of a whole answer.
    """

    __slots__ = (
        "_chat",
        "_dropped",
        "_ended",
        "_error",
        "_head",
        "_held",
        "_is_error",
        "_last",
        "_like",
        "_listening",
        "_now",
        "_problem",
        "_reads",
        "_refused",
        "_stages",
        "_streams",
        "_takes_whole",
        "_task",
        "_then",
        "exchange",
        "paused",
    )

    def __init__(
        self,
        door: Door,
        memory: EngineMemory,
        path: str,
        listening: MutableMapping[FilteringDoor, None],
        now: Callable[[], float],
    ) -> None:
        super().__init__(door)
        self._stages: Sequence[Stage] = ()
        self._chat = path.endswith("/chat/completions")
        self._listening = listening
        self._now = now
        self._held = HeldAnswer(memory, "answer", _LARGEST)
        self._head: tuple[int, bytes, int | None] | None = None
        self._streams = self._reads = self._takes_whole = self._is_error = self._ended = self.paused = False
        self._dropped = ""
        self._error = b""
        self._like: Mapping[str, Any] = {}
        self._last = 0.0
        self._problem: RequestError | None = None
        self._refused: RequestError | None = None
        self._task: asyncio.Task[None] | None = None
        self._then: Callable[[RequestError | None], None] | None = None
        self.exchange: OpenExchange | None = None

    def filter_with(self, stages: Sequence[Stage]) -> None:
        """Pass the answer through ``stages``, before it begins."""
        self._stages = stages
        self._reads = any(each.reads for each in stages)
        self._takes_whole = any(each.takes_whole for each in stages)

    def chunks_to(self) -> BatchedTransport | None:
        return None if self._stages else self._door.chunks_to()

    # --- from the exchange

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        if not self._stages:
            self._door.start(status, lines, length)
            return
        self._is_error = status >= 300
        self._streams = not self._is_error and b"content-type: text/event-stream" in lines.lower()
        self._head = (status, lines, None if self._streams else length)
        try:
            self._head = (status, self._headers(status, lines), None if self._streams else length)
        except RequestError as error:
            self._problem = error
            if self._streams:
                raise
        if self._streams:
            self._listen()
        self._takes_whole = not self._is_error and (self._takes_whole or self._problem is not None)

    def write(self, chunk: bytes) -> None:
        if not self._stages:
            self._door.write(chunk)
        elif self._streams:
            self._write(self._filtered(chunk))
        elif self._takes_whole:
            self._hold(chunk)
        else:
            self._note_error(chunk)
            self._write(chunk)

    def finish(self, chunk: bytes) -> None:
        if not self._stages:
            self._door.finish(chunk)
        elif self._problem is not None and self._streams:
            self._end_with_problem(self._problem, chunk)
        elif self._streams:
            passed = self._filtered(chunk, last=True)
            self._open()
            self._forget()
            self._door.finish(passed)
        elif self._takes_whole:
            self._hold(chunk)
            self._decide(self._held.take())
        else:
            self._note_error(chunk)
            self._open()
            self._door.finish(chunk)
            if self._is_error:
                self._tell(_error_in(self._error))
            self._forget()

    def fail(self, error: RequestError) -> None:
        """End an answer that no engine gives with ``error``, which a filter has raised."""
        envelope = msgspec.json.encode(error.envelope())
        self._end_with_problem(error, b"event: error\ndata: %s\n\n" % envelope)

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        if self._task is not None:
            self._then = then
        elif self._refused is not None:  # later: the engine's attempt ends as served
            asyncio.get_running_loop().call_soon(then, self._refused)
        else:
            super().settle(then)

    def abort(self) -> None:
        self._tell(_BROKEN)
        self.release()
        self._door.abort()

    def release(self) -> None:
        """The client is gone: hold nothing of the answer any more."""
        self._then = None
        if self._task is not None:
            self._task.cancel()
        self._tell(_LEFT)
        self._forget()

    # --- the head and the end

    def _headers(self, status: int, lines: bytes) -> bytes:
        """The header lines that filters make of ``lines``."""
        for each in self._stages:
            if not each.sees_head:
                continue
            shown = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in read_lines(lines)}
            said = {name.lower(): value for name, value in each.head(status, shown).items()}
            changed = {
                name.encode("latin-1"): value
                for name, value in said.items()
                if name not in _FRAMING and shown.get(name) != value
            }
            if changed:
                kept = lines_without(lines, tuple([name + b":" for name in changed]))
                new = [
                    b"%s: %s\r\n" % (name, value.encode("latin-1"))
                    for name, value in changed.items()
                    if value is not None
                ]
                lines = kept + b"".join(new)
        return lines

    def _open(self) -> None:
        """Send the head, if that has not happened yet."""
        head, self._head = self._head, None
        if head is not None:
            self._door.start(*head)

    def _write(self, chunk: bytes) -> None:
        if chunk:
            self._open()
            self._door.write(chunk)

    def _end_with_problem(self, problem: RequestError, event: bytes) -> None:
        """End a stream with the error of a filter: with ``event``, or with a response of its own."""
        self._note(problem)
        self._tell(_object(msgspec.json.encode(problem.envelope()))["error"])
        self._forget()
        if self._head is not None:
            _, lines, _ = self._head
            self._head = None
            self._send(problem.status, _with_json(lines), msgspec.json.encode(problem.envelope()))
        else:
            self._door.finish(event)

    def _note(self, error: RequestError) -> None:
        """Let the records of requests that have joined say how the answer ended."""
        if isinstance(self._door, SharingDoor):
            self._door.error = error

    def _forget(self) -> None:
        self._held.drop()
        self._listening.pop(self, None)
        for each in self._stages:
            each.release()

    def _tell(self, error: Mapping[str, Any]) -> None:
        """Tell filters, once, of the error that ended the answer."""
        if not self._ended:
            self._ended = True
            for each in self._stages:
                each.broken(error)

    def _note_error(self, chunk: bytes) -> None:
        if self._is_error:
            self._error = (self._error + chunk)[:_LARGEST_ERROR]

    # --- whole answers

    def _hold(self, chunk: bytes) -> None:
        if not self._dropped and (why := self._held.add(chunk)):
            self._dropped = why
            self._held.drop()

    def _decide(self, body: bytes, begin: int = 0) -> None:
        """Deliver what the stages from ``begin`` on make of a whole answer, now or later."""
        try:
            if self._problem is not None:
                raise self._problem
            if self._dropped:
                raise UpstreamError(f"The engine's answer was dropped before filters saw it: {self._dropped}")
            for number in range(begin, len(self._stages)):
                said = self._stages[number].whole(body)
                if not isinstance(said, bytes):
                    self._task = asyncio.ensure_future(self._wait(said, number + 1))
                    return
                body = said
        except RequestError as error:
            self._refused = refused = error.with_traceback(None)
            self._note(refused)
            envelope = refused.envelope()
            self._tell(envelope["error"])
            _, lines, _ = self._head or (0, b"", None)
            self._send(refused.status, _with_json(lines), msgspec.json.encode(envelope))
        else:
            self._ended = True
            status, lines, _ = self._head or (200, _JSON, None)
            self._send(status, lines, body)
        self._forget()

    async def _wait(self, said: Awaitable[bytes], begin: int) -> None:
        try:
            body = await said
        except RequestError as error:
            self._problem, body = error, b""
        self._task = None
        self._decide(body, begin)
        then = self._then
        if self._task is None and then is not None:
            self._then = None
            self.settle(then)

    def _send(self, status: int, lines: bytes, body: bytes) -> None:
        self._head = None
        self._door.start(status, lines, len(body))
        self._door.finish(body)

    # --- streams

    def tell_silence(self, now: float) -> None:
        """Tell filters how long the stream has been silent, and send what they make of that."""
        if self.paused or self._problem is not None:
            return
        try:
            pieces = b""
            for number, each in enumerate(self._stages):
                if each.listens and (events := each.silent(now - self._last)):
                    pieces += self._encoded(self._through(self._completed(events, each), number + 1, 0), each)
            self._write(pieces)
        except Exception as error:
            problem = error if isinstance(error, RequestError) else RequestError("A filter of the answer failed")
            self._problem = problem.with_traceback(None)
            if self.exchange is not None:
                self.exchange.cancel(problem)

    def _listen(self) -> None:
        if any(each.listens for each in self._stages):
            self._last = self._now()
            self._listening[self] = None

    def _filtered(self, chunk: bytes, *, last: bool = False) -> bytes:
        """What passes of a piece of the stream. Of a piece that a filter refuses, the beginning is sent."""
        if self in self._listening:
            self._last = self._now()
        if not self._reads and not last:
            return chunk
        if self._held.body or not (last or is_whole(chunk)):  # an event that is too large for one piece
            if why := self._held.add(chunk):
                self._problem = UpstreamError(f"The engine's answer was dropped while filters waited for it: {why}")
                raise self._problem
            if not (last or is_whole(chunk)):
                return b""
            chunk = self._held.take()
        pieces: list[bytes] = []
        try:
            for data, raw in _read(chunk):
                if data is None:
                    pieces.append(raw)
                elif data == _DONE:
                    pieces += (self._last_events(), raw)
                else:
                    pieces.append(self._event(data, raw))
            if last:
                pieces.append(self._last_events())
        except Exception as error:
            self._problem = error if isinstance(error, RequestError) else UpstreamError("A filter of the answer failed")
            self._write(b"".join(pieces))
            raise error.with_traceback(None) from None
        return b"".join(pieces)

    def _event(self, data: bytes, raw: bytes) -> bytes:
        try:
            decoded = _object(data)
        except (ValueError, RecursionError):
            return raw
        events = events_of(decoded)
        if events[0].kind == "error":
            error = decoded["error"]
            self._tell(error if isinstance(error, dict) else {"message": str(error), "code": None})
            return raw
        if "choices" in decoded:
            self._like = decoded
        if self._ended:
            return raw
        passed = self._through(events, 0, len(raw))
        if len(passed) == len(events) and all(one is other for one, other in zip(passed, events, strict=True)):
            return raw
        return self._encoded(passed, None)

    def _last_events(self) -> bytes:
        """The events that filters add to a stream that ends as it should."""
        if self._ended:
            return b""
        self._ended = True
        pieces = [
            self._encoded(self._through(self._completed(each.end(), each), number + 1, 0), each)
            for number, each in enumerate(self._stages)
        ]
        return b"".join(pieces)

    def _through(self, events: Sequence[Event], begin: int, size: int) -> Sequence[Event]:
        """What passes of ``events`` through the stages from ``begin`` on."""
        for stage in self._stages[begin:]:
            if not events:
                break
            passed: list[Event] = []
            for event in events:
                said = stage.event(event, size)
                passed += said if len(said) == 1 and said[0] is event else self._completed(said, stage)
            events = passed
        return events

    def _completed(self, events: Sequence[Event], by: Stage) -> Sequence[Event]:
        """What a filter has made, as the next one sees it."""
        try:
            return [completed(each, self._like, chat=self._chat) for each in events]
        except (TypeError, ValueError) as error:
            raise plugin_failed(by.terms.plugin, error) from error

    def _encoded(self, events: Sequence[Event], by: Stage | None) -> bytes:
        try:
            return b"".join([encoded(each) for each in events])
        except (TypeError, ValueError, RecursionError) as error:
            stage = by or next(each for each in self._stages if each.reads)
            raise plugin_failed(stage.terms.plugin, error) from error


def _read(chunk: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """The events of a piece of a stream: their data, and how they came."""
    try:
        whole = data_of(chunk).strip(), chunk
    except ValueError:
        begin = 0
        for event in read_events(chunk):
            yield event.data, chunk[begin : event.end]
            begin = event.end
    else:
        yield whole


def _with_json(lines: bytes) -> bytes:
    return lines_without(lines, _REPLACED) + _JSON


def _error_in(body: bytes) -> Mapping[str, Any]:
    """The error object of an answer."""
    try:
        error = _object(body).get("error")
    except (ValueError, RecursionError):
        error = body[:_MOST_QUOTED].decode(errors="replace")
    return error if isinstance(error, dict) else {"message": str(error), "code": None}
