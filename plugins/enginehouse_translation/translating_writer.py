"""Writes an answer in the protocol of its client, translated from the protocol of the engine."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from enginehouse import RequestError
from enginehouse.continuers import read_events
from enginehouse.errors import PluginFailed, UpstreamError
from enginehouse.middleware import (
    PING,
    EngineMemory,
    HeldAnswer,
    OpenExchange,
    PassingWriter,
    ResponseWriter,
    blamed_request,
    end_behind,
    lines_without,
    message_of,
    status_of,
)
from enginehouse_kit.protocols import Envelope, Protocol, Translation

_log = logging.getLogger(__name__)

_JSON: Final = b"application/json"
_LARGEST: Final = 64 << 20
"""Bytes of a whole answer, which is translated at once."""
_REPLACED: Final = (b"content-type:", b"content-length:", b"content-encoding:", b"x-enginehouse-protocol:")
_MOST_QUOTED: Final = 500
"""Characters of an engine's error that is not JSON."""
_AT_ONCE: Final = 4096
"""Bytes of events that are translated at once, which takes 1 to 2 ms."""
_MOST_WAITING: Final = 65536
"""Bytes of events that may wait before the engine is paused."""
_object = msgspec.json.Decoder(dict[str, Any]).decode
_TURNS_AT_ONCE: Final = 4
"""Turns in each iteration of the loop; one takes 1 to 2 ms."""


class TranslatingWriter(PassingWriter):
    """Passes an engine's answer on as ``translation`` makes it: a stream as it comes, any other when it is whole.

    Without ``translation``, the request was refused: all that comes is an error. ``exchange`` brings the answer of a
    live request: it is cancelled with an event that cannot be translated, of which nothing follows, and paused while
    there is a lot to translate. That is translated in turns with other streams. Whatever a protocol raises, its client
    gets an answer.

    ``_held``: what has come of an answer that is not a stream, unless ``_dropped`` says why it is not held.
    ``_waiting``: events that wait for a turn, from ``_place`` on. ``_joined``: it waits for one. ``_ends``: the last
    piece is among them. ``_holds``: the engine is paused because of them. ``_over``: the stream has had its
    last event, or an error: nothing follows.
    """

    __slots__ = (
        "_client_is_slow",
        "_dropped",
        "_ends",
        "_held",
        "_holds",
        "_joined",
        "_lines",
        "_over",
        "_place",
        "_problem",
        "_protocol",
        "_status",
        "_streams",
        "_then",
        "_turns",
        "_waiting",
        "exchange",
        "translation",
    )

    def __init__(
        self, writer: ResponseWriter, protocol: Protocol, memory: EngineMemory, turns: TranslationTurns
    ) -> None:
        super().__init__(writer)
        self._status = 0
        self._lines = b""
        self._streams = False
        self._held = HeldAnswer(memory, "answer", _LARGEST)
        self._dropped = ""
        self._protocol = protocol
        self._turns = turns
        self._problem: RequestError | None = None
        self._then: Callable[[RequestError | None], None] | None = None
        self._waiting = b""
        self._place = 0
        self._client_is_slow = self._ends = self._holds = self._joined = self._over = False
        self.translation: Translation | None = None
        self.exchange: OpenExchange | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._status = status
        self._streams = status < 300 and b"content-type: text/event-stream" in lines.lower()
        own = b"x-enginehouse-protocol: %s\r\n" % self._protocol.name.encode()
        self._lines = lines_without(lines, _REPLACED) + own
        if self._streams and self.translation is not None:
            self._writer.start(status, self._typed(self.translation.stream_type), None)

    def write(self, chunk: bytes) -> None:
        if not self._streams:
            self._hold(chunk)
        elif self._waiting or len(chunk) > _AT_ONCE:
            self._wait(chunk)
        else:
            self._translate(chunk)

    def finish(self, chunk: bytes) -> None:
        if not self._streams:
            self._hold(chunk)
            self._deliver(bytes(self._held.body))
        elif self._waiting or len(chunk) > _AT_ONCE:
            self._ends = True
            self._wait(chunk)
        else:
            self._translate_last(chunk)

    def unread(self) -> int:
        return self._left + self._writer.unread()

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        if self._left:
            self._then = then
        elif self._problem is not None:
            then(self._problem)
        else:
            super().settle(then)

    def abort(self) -> None:
        self.release()
        self._writer.abort()

    def release(self) -> None:
        """The client is gone: hold nothing of the answer any more."""
        self._then = None
        self._forget()
        self._held.drop()

    # --- turns

    @property
    def _left(self) -> int:
        return len(self._waiting) - self._place

    def pause(self) -> None:
        """Translate nothing until ``resume``: the client is slow."""
        self._client_is_slow = True
        if self.exchange is not None:
            self.exchange.pause()

    def resume(self) -> None:
        """Translate on."""
        self._client_is_slow = False
        self._join()
        if self.exchange is not None and not self._holds:
            self.exchange.resume()

    def _wait(self, chunk: bytes) -> None:
        """Have ``chunk`` translated later, and no more brought if that is much."""
        if self._problem is not None and not self._ends:
            return
        self._waiting = self._waiting[self._place :] + chunk
        self._place = 0
        self._join()
        if not self._holds and self._left > _MOST_WAITING and self.exchange is not None:
            self._holds = True
            self.exchange.pause()

    def _join(self) -> None:
        if self._waiting and not self._joined and not self._client_is_slow:
            self._joined = True
            self._turns.join(self)

    def _forget(self) -> None:
        self._waiting = b""
        self._place = 0

    def take_turn(self) -> bool:
        """Translate a bounded part; whether there is more."""
        self._joined = bool(self._waiting) and not self._client_is_slow
        if not self._joined:
            return False
        end = end_behind(self._waiting, self._place + _AT_ONCE)
        piece, self._place = self._waiting[self._place : end], end
        if self._left:
            self._translate(piece)
        else:
            self._forget()
            if self._ends:
                self._translate_last(piece)
            else:
                self._translate(piece)
        then = self._then
        if then is not None and not self._left:
            self._then = None
            self.settle(then)
        if self._holds and self._left <= _MOST_WAITING // 2 and self.exchange is not None:
            self._holds = False
            if not self._client_is_slow:
                self.exchange.resume()
        self._joined = bool(self._waiting) and not self._client_is_slow
        return self._joined

    # --- events

    def _translate(self, chunk: bytes) -> None:
        if self._problem is not None:
            return
        if changed := self._changed(chunk):
            self._writer.write(changed)
        if self._problem is None:
            return
        self._forget()
        if self._ends:
            self._translate_last(b"")
        elif self.exchange is not None:  # later: the exchange is still busy with this piece
            asyncio.get_running_loop().call_soon(self.exchange.cancel, self._problem)

    def _translate_last(self, chunk: bytes) -> None:
        translation = self.translation
        assert translation is not None
        has_failed, last = self._problem is not None, self._changed(chunk)
        problem = self._problem
        if problem is None:
            self._writer.finish(last)
        elif has_failed or self.exchange is None or self._ends:
            self._writer.finish(last + self._error_event(translation, problem.status, problem.envelope()))
        else:  # the exchange ends the stream with the error
            if last:
                self._writer.write(last)
            self.exchange.cancel(problem)

    def _hold(self, chunk: bytes) -> None:
        if not self._dropped and (why := self._held.add(chunk)):
            self._dropped = why
            self._held.drop()

    def _deliver(self, body: bytes) -> None:
        """Send what becomes of a whole answer, which is empty if it was dropped."""
        status, translated = self._translated(body)
        self._held.drop()
        self._writer.start(status, self._typed(_JSON), len(translated))
        self._writer.finish(translated)

    def _typed(self, content_type: bytes) -> bytes:
        return b"%scontent-type: %s\r\n" % (self._lines, content_type)

    def _changed(self, chunk: bytes) -> bytes:
        translation = self.translation
        assert translation is not None
        pieces, begin = [], 0
        if self._problem is not None:
            return b""
        for event in read_events(chunk):
            if self._over:
                break
            try:
                pieces.append(self._event(translation, event.data, chunk[begin : event.end]))
            except BaseException as error:
                self._problem = known(error, self._protocol)
                break
            begin = event.end
        return b"".join(pieces)

    def _event(self, translation: Translation, data: bytes | None, text: bytes) -> bytes:
        if data is None:  # a comment tells a waiting client its place in the queue, or keeps its connection alive
            if translation.stream_type.startswith(b"text/event-stream"):
                return (translation.ping() or text) if text == PING else text
            return translation.ping() if text.startswith(b":") else b""
        if data.strip() == b"[DONE]":
            end = translation.end()
            self._over = True
            return end
        event = _decoded(data)
        if (error := event.get("error")) is None:
            return translation.event(event)
        self._over = True
        status = _status_of(error)
        return self._error_event(translation, status, {"error": _error_fields(status, error)})

    def _error_event(self, translation: Translation, status: int, envelope: Envelope) -> bytes:
        try:
            return translation.error_event(status, envelope)
        except BaseException:
            _log.exception("The protocol '%s' failed to tell an error", self._protocol.name)
            return b"event: error\ndata: %s\n\n" % msgspec.json.encode(envelope)

    def _translated(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer that is not a stream."""
        status, envelope = self._status, None
        try:
            if self._dropped:
                raise UpstreamError(f"The engine's answer was dropped before it was translated: {self._dropped}")
            if status < 300 and self.translation is not None:
                return status, self.translation.answer(_decoded(body))
            envelope = _envelope(status, body)
            return status, self._protocol.error(status, envelope)
        except BaseException as error:
            problem = known(error, self._protocol)
        self._problem = problem.with_traceback(None)
        if envelope is None:
            status, envelope = problem.status, problem.envelope()
            try:
                return status, self._protocol.error(status, envelope)
            except BaseException as error:
                known(error, self._protocol)
        return status, msgspec.json.encode(envelope)


def known(error: BaseException, protocol: Protocol) -> RequestError:
    """The error that clients get instead of ``error``, which is handled now; a fault of ``protocol`` is logged."""
    if isinstance(error, RequestError):
        return error
    _log.exception("The protocol '%s' failed", protocol.name)
    return PluginFailed(f"The protocol '{protocol.name}' failed; the gateway's log has the reason")


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return _object(body)
    except (ValueError, RecursionError):
        raise UpstreamError("The engine's answer is not a JSON object, or too large") from None


def _envelope(status: int, body: bytes) -> Envelope:
    """An error as OpenAI has it, with all of its fields, whatever the engine made of it."""
    try:
        answer = _object(body)
    except (ValueError, RecursionError):
        said = body[:_MOST_QUOTED].decode(errors="replace")
        return {"error": _error_fields(status, said)}
    error = answer.get("error") or answer.get("message") or answer.get("detail") or "The engine refused the request"
    return {"error": _error_fields(status, error)}


def _status_of(error: object) -> int:
    """The status of an error in a stream, the head of which said 200."""
    if not isinstance(error, dict):
        return RequestError.status
    details = error.get("details")
    theirs = details.get("error") if isinstance(details, dict) else None
    return blamed_request(theirs) or blamed_request(error) or status_of(str(error.get("code")))


def _error_fields(status: int, error: object) -> dict[str, Any]:
    fields = error if isinstance(error, dict) else {"message": error}
    type = "server_error" if status >= 500 else "invalid_request_error"
    return {"type": type, "param": None, "code": None, **fields, "message": message_of(fields.get("message") or fields)}


class TranslationTurns:
    """Gives streams with a lot to translate their turns, a few in each iteration of the loop.

    So everything else on the loop waits for a few milliseconds at most, however many streams there are.
    """

    def __init__(self) -> None:
        self._waiting: deque[TranslatingWriter] = deque()
        self._planned = 0

    def join(self, stream: TranslatingWriter) -> None:
        """Have ``stream`` take turns until it has no more. It must not join again before."""
        if self._planned < _TURNS_AT_ONCE:
            self._planned += 1
            asyncio.get_running_loop().call_soon(self._turn, stream)
        else:
            self._waiting.append(stream)

    def _turn(self, stream: TranslatingWriter) -> None:
        self._planned -= 1
        if self._waiting:  # first: a stream that raises stops no other one
            self.join(self._waiting.popleft())
        if stream.take_turn():
            self.join(stream)
