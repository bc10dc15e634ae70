"""The answer that the client of an exchange gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import RequestError, UpstreamError
from enginehouse.domain.tokens import Tokens
from enginehouse.interfaces.continuers import KeptStream
from enginehouse.relay.answers.changes import Cut, RenamedPieces, joined_cuts, renaming
from enginehouse.relay.answers.json_in_pieces import JsonInPieces
from enginehouse.relay.events.sse import comment, data_of, data_of_typed, framed, is_whole, whole_events
from enginehouse.relay.events.stream_check import BrokenStream, StreamCheck
from enginehouse.relay.events.stream_form import StreamForm
from enginehouse.relay.heads import ATTEMPTS, AnswerHead, error_lines
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse.telemetry.answer_meter import AnswerMeter, AnswerSize, answer_ends, read_tokens, tokens_of
from enginehouse.telemetry.trace_context import capture

_MOST_KEPT: Final = 64 * 1024
_OPENED: Final = (
    b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
    b"x-request-id: %s\r\n"
)
_CUT_JSON: Final = BrokenStream("ended its answer in the middle of its JSON", 0)
_ERROR_FIELDS = ("message", "type", "param", "code")


class Reply:
    """An engine's answer as it comes, or an error in the form that can still be sent.

    A stream passes in whole events, so that it can be continued or ended with an error event at any time. Its head
    waits for the first of them: until then another engine can take the answer over.

    - ``begun``: the engine's answer has begun.
    - ``status``: of the head; 0 until the writer has it.
    - ``is_read``: the answer was read as a whole, and ``tokens`` are those that the engine has counted.
    - ``json``: follows an answer in pieces that must be whole JSON.
    - ``is_over``: the last event of a stream has passed, even if its engine does not end the answer.
    - ``paused``: the client is slow.
    - ``history``: keeps what the client gets of a stream that can be continued.
    - ``filters``: make the client's pieces of the engine's, in their order. Those of a stream are whole events.
    - ``captured``: what the client gets is added to this, up to 256 KiB, for a trace.
    - ``fast_path``: of the stream's events, if it has one.
    """

    begun: bool = False
    status: int = 0
    is_read: bool = False
    tokens: Tokens | None = None
    json: JsonInPieces | None = None
    is_over: bool = False
    paused: bool = False
    history: KeptStream | None = None
    filters: tuple[Cut, ...] = ()
    captured: bytearray | None = None
    fast_path: FastPath | None = None
    _head: tuple[int, bytes] | None = None
    _held: bytes = b""
    _check: StreamCheck | None = None
    _stream: bool = False
    _meter: AnswerMeter | None = None
    _whole: bytes = b""
    _renamed: RenamedPieces | None = None

    def __init__(self, writer: ResponseWriter, form: StreamForm) -> None:
        self.writer = writer
        self.form = form

    @property
    def events(self) -> int | None:
        """How many events with a token the client has got of a stream; ``None`` before it begins."""
        return self.measure()[1] if self._stream and self.begun else None

    def begin(self, status: int, lines: bytes, length: int | None, stream: bool) -> None:
        """Begin the answer: its header lines, the length of its body if known, and whether that is a stream."""
        self.begun = True
        self._stream = stream
        if not stream:
            self.status = status
            self.writer.start(status, lines, None if self.filters else length)
            return
        self._head = (status, lines)
        self._meter = AnswerMeter(stream=True)
        if status < 300 and self.form.is_checked:
            self._check = StreamCheck(self.form)

    def go_on(self, history: KeptStream | None) -> None:
        """Begin in the middle of a stream, whose beginning the client has from another process."""
        self.status = 200
        self.begun = self._stream = True
        self._meter = AnswerMeter(stream=True)
        self.history = history
        if history is not None:
            history.meter = self._meter

    def name_model(self, name: str, *, stream: bool) -> None:
        """Have the client get ``name`` as the model, in an answer or a ``stream`` that begins now."""
        self._renamed = None if stream else RenamedPieces(name)
        self.filters += (self._renamed or renaming(name),)

    def keep(self, history: KeptStream | None) -> None:
        """Let ``history``, if it can be continued, keep the stream that begins now."""
        meter = self._meter
        assert meter is not None
        self.history = history
        if history is not None:
            history.meter = meter
        if self.captured is None and (transport := self.writer.chunks_to()) is not None:
            cut = history.cut if history is not None else None
            for each in self.filters:
                cut = joined_cuts(cut, each)
            form = self.form if self._check is not None else None
            self.fast_path = FastPath(transport, history or meter, cut, form)

    def withdraw(self) -> bool:
        """Take back an answer of which nothing has passed yet, so that another one may begin; whether there was one."""
        if self.status or not self.begun:
            return False
        self.begun = False
        self._held = b""
        self._head = self._check = self._meter = None
        self.history = self.fast_path = self._renamed = None
        self.filters = ()
        return True

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Pass on an answer that arrived whole, and is not a stream."""
        self.begun = True
        self.status = status
        self._whole = body
        if self._renamed is not None:
            body = self._renamed.whole(body)
        if self.captured is not None:
            capture(self.captured, body)
        self.writer.answer(status, lines, body)

    def open(self, request_id: bytes) -> None:
        """Begin a stream before the engine has answered."""
        self.status = 200
        self._stream = True
        self._meter = AnswerMeter(stream=True)
        self.writer.start(200, _OPENED % request_id, None)

    def ping(self, request_id: bytes) -> None:
        """Write what clients pass over to a stream that is silent, so that nobody takes its connection for dead.

        It begins the stream if need be.
        """
        if self.paused or (self._check is not None and self._check.is_inside):
            return
        if self._head is not None and not self.status:
            self._start()
        elif not self.status:
            self.open(request_id)
        self._send(self.form.ping)

    def join(self, head: AnswerHead, note: bytes, backend: str) -> Reply:
        """Begin the answer in an opened stream, after ``note`` as a comment. Returns the reply that continues it."""
        if not head.stream or head.status != 200:
            return MismatchedReply(self, backend, head.status)
        self.begun = True
        self.write(comment(note))
        if self.form.is_checked:
            self._check = StreamCheck(self.form)
        return self

    def write(self, body: bytes) -> BrokenStream | None:
        """Pass on a piece of the body. Of a broken stream, pass on the good part and return the problem."""
        fast_path, check = self.fast_path, self._check
        if fast_path is not None:
            fast_path.is_open = False
            if fast_path.failure is not None:
                raise fast_path.failure
        if self._stream:
            if self._held or not is_whole(body):
                body, self._held = whole_events(self._held + body)
                if not body:
                    return None
            if check is not None and (problem := check.look(body)) is not None:
                return self._write_good(body, problem)
        if not self.status:
            self._start()
        if self.json is not None:
            self.json.take(body)
        if piece := self._passed(body):
            self._send(piece)
            if fast_path is not None:
                fast_path.is_open = not self._held and (check is None or not check.is_inside)
        self.is_over = check is not None and check.ended
        return None

    def finish(self, body: bytes) -> BrokenStream | None:
        """Pass on the last piece of the body. Of a broken stream, pass on the good part and return the problem."""
        body = self._held + body if self._held else body
        if self._check is not None and (problem := self._check.end(body)) is not None:
            return self._write_good(body, problem)
        if self.json is not None:
            self.json.take(body)
            if not self.json.is_whole:
                return _CUT_JSON
        if not self.status:
            self._start()
        if self._meter is None:
            self._whole = body
        elif body:
            body = self._passed(body)
        self.end(body)
        return None

    def _send(self, piece: bytes) -> None:
        """Pass on what the filters make of a piece."""
        for each in self.filters:
            piece = each(piece)
        if piece:
            if self.captured is not None:
                capture(self.captured, piece)
            self.writer.write(piece)

    def end(self, piece: bytes) -> None:
        """End what the client gets with its last piece, which may be empty."""
        if self._renamed is not None:
            self._renamed.ends = True
        for each in self.filters:
            piece = each(piece)
        if self.captured is not None:
            capture(self.captured, piece)
        self.writer.finish(piece)

    def _passed(self, body: bytes) -> bytes:
        """Count and keep a piece that passes. Returns what the client gets of it, which may be nothing."""
        if self.history is not None:
            return self.history.take(body)
        if self._meter is None:
            self._meter = AnswerMeter(stream=False)
        self._meter.add(body)
        return body

    def _write_good(self, body: bytes, problem: BrokenStream) -> BrokenStream:
        if problem.good:
            if not self.status:
                self._start()
            if piece := self._passed(body[: problem.good]):
                self._send(piece)
        return problem

    def fail(self, error: RequestError, request_id: bytes, attempts: int = 0) -> None:
        """End with an error: as the whole response, as the last event of a stream, or by breaking off.

        ``attempts``: how many engines have had the request.
        """
        if not self.status:
            self._refuse(error, request_id, attempts)
        elif self._stream:
            self.measure()
            begun = self._meter is not None and self._meter.has_events
            self.end(self.form.error_event(error.status, error.envelope(), begun=begun))
        else:
            self.writer.abort()

    def measure(self) -> AnswerSize:
        """The size of the engine's answer, as far as it has passed."""
        if self._meter is None:
            size, events = len(self._whole), 0
            tokens = self.tokens if self.is_read else read_tokens(self._whole)
        else:
            if self.history is not None:
                self.history.count()
            size, events, tokens = self._meter.total()
            usage = None if self._check is None else self._check.usage
            tokens = tokens if usage is None else tokens_of(usage) or tokens
        if tokens is None and self.writer.holds_back:
            tokens = self.writer.counted()
        return size, events, tokens

    def ends(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the engine's answer, after ``measure``."""
        return answer_ends(self._whole) if self._meter is None else self._meter.ends()

    def _start(self) -> None:
        assert self._head is not None
        self.status, lines = self._head
        self.writer.start(self.status, lines, None)

    def _refuse(self, error: RequestError, request_id: bytes, attempts: int) -> None:
        body = self.form.error_body(error.status, error.envelope())
        lines = error_lines(error, request_id)
        if attempts:
            lines += b"%s%d\r\n" % (ATTEMPTS, attempts)
        if self.captured is not None:
            capture(self.captured, body)
        self.writer.start(error.status, lines, len(body))
        self.writer.finish(body)


class MismatchedReply(Reply):
    """Ends an opened stream with an error event for an answer that does not fit: no stream, or a status other than 200.

    The fields of the engine's own error become those of the event. ``details`` has the status and up to 64 KiB of the
    body.
    """

    def __init__(self, opened: Reply, backend: str, status: int) -> None:
        super().__init__(opened.writer, opened.form)
        self.begun = self._stream = True
        self.filters, self.captured = opened.filters, opened.captured
        self.paused = opened.paused
        self.status = status if status >= 400 else UpstreamError.status
        self._answered = status
        self._backend = backend
        self._body = b""

    def write(self, body: bytes) -> BrokenStream | None:
        self._body = (self._body + body)[:_MOST_KEPT]
        return None

    def finish(self, body: bytes) -> BrokenStream | None:
        self.write(body)
        status, details = self._answered, _decoded(self._body)
        how = "answered" if status >= 400 else "did not stream but answered"
        error = UpstreamError(f"Backend '{self._backend}' {how} {status}", details={"status": status, "body": details})
        envelope = error.envelope()
        theirs = details.get("error") if isinstance(details, dict) else None
        if isinstance(theirs, dict):
            envelope["error"] |= {name: theirs[name] for name in _ERROR_FIELDS if name in theirs}
        self.end(self.form.error_event(self.status, envelope, begun=False))
        return None


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except ValueError:
        return body.decode(errors="replace")


class FastPath:
    """Passes an event on that came alone in a chunk, if it is plain: neither the last one nor an error.

    With many streams no object of a stream stays in a cache: each one on the way takes 0.2 us of every event. So this
    one has all that a plain event needs. All else goes through the exchange, whose reply opens the fast path whenever
    no event is incomplete. ``sink``: keeps or counts what passes. ``cut``: makes the client's events of the engine's,
    if they differ. ``form``: of a stream that is checked. ``failure``: that of a plugin, which ends the stream.
    """

    __slots__ = ("_cut", "_most", "_pieces", "_plain", "_sink", "_size", "_transport", "_typed", "failure", "is_open")

    def __init__(
        self, transport: BatchedTransport, sink: KeptStream | AnswerMeter, cut: Cut | None, form: StreamForm | None
    ) -> None:
        self.is_open = False
        self.failure: Exception | None = None
        self._typed = form is not None and bool(form.last)
        self._plain: Callable[[bytes], object] | None = None if form is None else form.plain
        self._pieces = sink.pieces
        self._size = 0
        self._most = sink.most
        self._cut = cut
        self._transport = transport
        self._sink = sink

    def take(self, chunk: bytes, event: bytes) -> bool:
        """Pass on ``event``, the content of ``chunk``. ``False``: it needs the long way, and nothing was done."""
        if not self.is_open:
            return False
        if self._plain is None:
            if not is_whole(event):
                return False
        else:
            try:
                self._plain(data_of_typed(event) if self._typed else data_of(event))
            except (ValueError, RecursionError):
                return False
        try:
            self._pieces.append(event)
            self._size += len(event)
            if self._size > self._most:
                self._size = 0
                self._sink.read()
            if self._cut is None:
                self._transport.write(chunk)
            elif piece := self._cut(event):
                self._transport.write(framed(piece))
        except Exception as error:  # of the plugin that keeps the stream: no fault of the connection to its engine
            self.failure = error.with_traceback(None)
            return False
        return True
