"""What becomes of one answer in its filters. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse import RequestError
from enginehouse.continuers import is_whole, read_events
from enginehouse.errors import UpstreamError
from enginehouse.middleware import (
    GuardRefused,
    HeldAnswer,
    blamed_request,
    data_of,
    lines_without,
    message_of,
    read_lines,
    status_of,
)
from enginehouse_interception.stage import Stage
from enginehouse_interception.stream_events import completed, encoded, events_of
from enginehouse_kit.interceptors import Event

_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection"})
_DONE: Final = b"[DONE]"
_object = msgspec.json.Decoder(dict[str, Any]).decode


class AnswerFilters:
    """The filters of one answer, ``stages``, which it passes in their order.

    - ``held``: where the beginning of an event waits that is too large for one piece.
    - ``chat``: it is the answer to a chat.
    - ``reads``: a stream is read for one of them. ``takes_whole``: one wants other answers when they are whole.
      ``listens``: one wants to know of silence.
    - ``problem``: the error that a filter has raised: the answer ends with it.
    - ``ended``: filters know how the answer ended. ``_told``: so many know of the end of a stream.
    """

    __slots__ = ("_chat", "_held", "_like", "_stages", "_told", "ended", "listens", "problem", "reads", "takes_whole")

    def __init__(self, stages: Sequence[Stage], held: HeldAnswer, *, chat: bool) -> None:
        self._stages = stages
        self._held = held
        self._chat = chat
        self._like: Mapping[str, Any] = {}
        self.reads = any(each.reads for each in stages)
        self.takes_whole = any(each.takes_whole for each in stages)
        self.listens = any(each.listens for each in stages)
        self.problem: RequestError | None = None
        self.ended = False
        self._told = 0

    def head(self, status: int, lines: bytes) -> bytes:
        """The header lines that filters make of ``lines``. Raises ``RequestError``."""
        for each in self._stages:
            if each.sees_head:
                try:
                    lines = _changed(lines, status, each)
                except RequestError as error:
                    self.problem = error
                    raise
        return lines

    def take(self, chunk: bytes, *, last: bool = False) -> tuple[bytes, Exception | None]:
        """What passes of a piece of a stream; ``last``: of its last one. Of a piece that is refused, the beginning.

        Beside it, the exception of the filter that has refused it.
        """
        if not self.reads and not last:
            return chunk, None
        if self._held.body or not (last or is_whole(chunk)):
            if why := self._held.add(chunk):
                self.problem = UpstreamError(f"The engine's answer was dropped while filters waited for it: {why}")
                return b"", self.problem
            if not (last or is_whole(chunk)):
                return b"", None
            chunk = self._held.take()
        pieces: list[bytes] = []
        try:
            for data, raw in _read(chunk):
                if self.ended:  # nothing follows the last event, or an error
                    break
                if data is None:
                    pieces.append(raw)
                elif data == _DONE:
                    self._add_last(pieces)
                    pieces.append(raw)
                else:
                    self._add(data, raw, pieces)
            if last:
                self._add_last(pieces)
        except Exception as error:
            return self._refused(error, pieces)
        return b"".join(pieces), None

    def silent(self, seconds: float) -> tuple[bytes, Exception | None]:
        """As ``take``, what the client gets of a stream that has been silent for so long."""
        pieces: list[bytes] = []
        try:
            for number, each in enumerate(self._stages):
                if each.listens:
                    _encode(self._through(each.silent(seconds, self._complete), number + 1, 0), pieces)
        except Exception as error:
            return self._refused(error, pieces)
        return b"".join(pieces), None

    def whole(self, body: bytes, begin: int = 0) -> bytes | tuple[Awaitable[bytes], int]:
        """What the stages from ``begin`` on make of an answer that is whole. Raises ``RequestError``.

        If a filter takes its time: what it will make, and the stage to go on with.
        """
        for number in range(begin, len(self._stages)):
            said = self._stages[number].whole(body)
            if not isinstance(said, bytes):
                return said, number + 1
            body = said
        return body

    def broken(self, error: Mapping[str, Any]) -> None:
        """Tell filters, once, of the error that ended the answer."""
        if not self.ended:
            self.ended = True
            for each in self._stages[self._told :]:
                each.broken(error)

    def release(self) -> None:
        """Hold nothing any more."""
        self._held.drop()
        for each in self._stages:
            each.release()

    def fail(self, error: Exception) -> None:
        """End the answer with ``error``, which a filter or its client has raised."""
        problem = error if isinstance(error, RequestError) else UpstreamError("A filter of the answer failed")
        self.problem = problem.with_traceback(None)

    def _refused(self, error: Exception, pieces: Sequence[bytes]) -> tuple[bytes, Exception]:
        self.fail(error)
        return b"".join(pieces), error.with_traceback(None)

    def _add(self, data: bytes, raw: bytes, pieces: list[bytes]) -> None:
        """Add what passes of an event to ``pieces``. Raises what a filter raises."""
        try:
            decoded = _object(data)
        except (ValueError, RecursionError):
            pieces.append(raw)
            return
        events = events_of(decoded)
        if events[0].kind == "error":
            error = decoded["error"]
            self.broken(error if isinstance(error, dict) else {"message": str(error), "code": None})
            pieces.append(raw)
            return
        if "choices" in decoded or "content" in decoded:
            self._like = decoded
        passed = self._through(events, 0, len(raw))
        if len(passed) == len(events) and all(one is other for one, other in zip(passed, events, strict=True)):
            pieces.append(raw)
        else:
            _encode(passed, pieces)

    def _add_last(self, pieces: list[bytes]) -> None:
        """Add the events that filters add to a stream that ends as it should. Raises what a filter raises."""
        if self.ended:
            return
        for number, each in enumerate(self._stages):
            self._told = number + 1
            _encode(self._through(each.end(self._complete), number + 1, 0), pieces)
        self.ended = True

    def _through(self, events: Sequence[Event], begin: int, size: int) -> Sequence[Event]:
        """What passes of ``events`` through the stages from ``begin`` on."""
        for stage in self._stages[begin:]:
            if not events:
                break
            passed: list[Event] = []
            for event in events:
                passed += stage.event(event, size, self._complete)
            events = passed
        return events

    def _complete(self, event: Event) -> Event:
        """An event that a filter has made, as the next one sees it. Raises ``ValueError`` and the like for nonsense."""
        made = completed(event, self._like, chat=self._chat)
        encoded(made)  # here it is known which filter has made what is no JSON
        return made


def _encode(events: Sequence[Event], pieces: list[bytes]) -> None:
    """Add ``events`` to the ``pieces`` of a stream. An error among them is raised: nothing follows it."""
    for event in events:
        error = event.data.get("error")
        if event.kind == "error" or error is not None:
            fields = error if isinstance(error, dict) else {}
            code = str(fields.get("code") or GuardRefused.code)
            message = message_of(fields.get("message") or error or event.text)
            raise GuardRefused(blamed_request(error) or status_of(code), code, message)
        pieces.append(encoded(event))


def _changed(lines: bytes, status: int, by: Stage) -> bytes:
    """Header ``lines`` as one filter changes them."""
    shown = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in read_lines(lines)}
    said = {name.lower(): value for name, value in by.head(status, shown).items()}
    changed = {
        name.encode("latin-1"): value
        for name, value in said.items()
        if name not in _FRAMING and shown.get(name) != value
    }
    if not changed:
        return lines
    new = [b"%s: %s\r\n" % (name, value.encode("latin-1")) for name, value in changed.items() if value is not None]
    return lines_without(lines, tuple([name + b":" for name in changed])) + b"".join(new)


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
