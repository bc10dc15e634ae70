"""Checks that a stream is whole: every event is a JSON object, none is an error, and the last one is there."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from enginehouse.fleet.health import blamed_request, error_in
from enginehouse.relay.events.sse import (
    LARGEST_HELD,
    ServerSentEvent,
    data_of,
    data_of_typed,
    is_utf8,
    is_whole,
    read_events,
    whole_events,
)
from enginehouse.relay.events.stream_form import StreamForm, decode_event

_DONE: Final = b"data: [DONE]\n\n"


class BrokenStream(NamedTuple):
    """The reason why a stream is broken. ``good``: the number of good bytes before it. ``error``: the engine's own.

    ``differs``: it is whole so far, but does not continue what the client has.
    """

    why: str
    good: int
    error: Any = None
    differs: bool = False

    @property
    def blamed(self) -> int:
        """The HTTP status with which the engine blames the request; 0 if it does not."""
        return blamed_request(self.error)


class StreamCheck:
    """Reads a stream's events as they pass. ``ended``: the last event has passed. ``usage``: in its response, if any.

    Every event is decoded, because a JSON decoder that keeps nothing is faster than a search for ``"error"``. Plain
    events in the usual spelling cost nothing else; all others are split and read as the standard says.
    """

    __slots__ = ("_form", "_plain", "_torn", "_typed", "ended", "usage")

    def __init__(self, form: StreamForm) -> None:
        self._form = form
        self._plain = form.plain
        self._typed = bool(form.last)
        self._torn: ServerSentEvent | None = None
        self.ended = False
        self.usage: object = None

    @property
    def is_inside(self) -> bool:
        """Whether the next piece continues an event that is too large to be held."""
        return self._torn is not None

    def look(self, piece: bytes) -> BrokenStream | None:
        """Look at whole events, or at a part of an event that is too large to be held."""
        if self._torn is None:
            try:
                if not self._typed:
                    self._plain(data_of(piece))
                    return None
            except (ValueError, RecursionError):
                pass
            done = self._form.ends_as_done and piece.endswith(_DONE)
            plain = piece[: -len(_DONE)] if done else piece
            if not plain or (plain[-2:] == b"\n\n" and self._are_plain(plain)):
                self.ended = self.ended or done
                return None
        return self._look_at_each(piece)

    def end(self, rest: bytes) -> BrokenStream | None:
        """Look at the last piece, whose last event may lack its blank line. The last event must have passed."""
        problem = self.look(rest) if rest and not self.ended else None
        if self.ended:
            return None
        good = len(whole_events(rest)[0])
        if problem is None or (problem.error is None and problem.good >= good):
            return BrokenStream("ended its stream before the last event", good)
        return problem

    def _are_plain(self, events: bytes) -> bool:
        try:
            for event in events[:-2].split(b"\n\n"):
                whole = event + b"\n\n"
                self._plain(data_of_typed(whole) if self._typed else data_of(whole))
        except (ValueError, RecursionError):
            return False
        return True

    def _look_at_each(self, piece: bytes) -> BrokenStream | None:
        good = 0
        for event in read_events(piece):
            whole = event.end < len(piece) or is_whole(piece)
            if self._torn is not None:
                if whole:
                    self.ended = self.ended or self._torn.name in self._form.last
                    self._torn = None
            elif not whole and event.end - good > LARGEST_HELD:
                self._torn = event
            elif not self.ended:
                problem = self._problem(event, piece[good : event.end], good)
                if problem is not None:
                    return problem
            good = event.end
        return None

    def _problem(self, read: ServerSentEvent, text: bytes, good: int) -> BrokenStream | None:
        name, data = read.name, read.data
        if not read.is_known or not is_utf8(text):
            error = _error_line(text)
            if error is None:
                return BrokenStream("sent a line that is none of a stream of events", good)
            return _with_error(good, error)
        if data is None:
            return None
        if data.strip() == b"[DONE]":
            self.ended = self._form.ends_as_done
            return None
        try:
            event = decode_event(data)
        except (ValueError, RecursionError):
            return BrokenStream("sent an event that is not a JSON object", good)
        kind, error = event.type, event.error
        if error is None and isinstance(event.response, dict):
            error = event.response.get("error")
        if error is not None or name == "error" or str(kind) in self._form.failed or event.is_error:
            if error is None or isinstance(error, str):
                whole = msgspec.json.decode(data)
                error = whole if error is None else error_in(whole)
            return _with_error(good, error)
        if reason := event.broken_off:
            return BrokenStream(f"broke its stream off: finish_reason '{reason}'", good)
        self.ended = str(kind) in self._form.last
        if self.ended and isinstance(event.response, dict):
            self.usage = event.response.get("usage")
        return None


def _with_error(good: int, error: object) -> BrokenStream:
    return BrokenStream(f"broke its stream off with an error: {message_of(error)}", good, error)


def _error_line(text: bytes) -> Any:
    """The error in a line that is none of a stream: a bare JSON object, or one after ``error:``; else ``None``."""
    line = text.strip()
    try:
        found = msgspec.json.decode(line.removeprefix(b"error:"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return found.get("error") or (found if line.startswith(b"error:") else None)


def message_of(error: object) -> str:
    """What an engine's error says."""
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    return message if isinstance(message, str) else msgspec.json.encode(error).decode()
