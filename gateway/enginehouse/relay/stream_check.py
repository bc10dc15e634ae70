"""Checks that a stream is whole: no event is an error, and the last one is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from enginehouse.relay.sse import ENDS, read_events
from enginehouse.relay.stream_form import StreamForm


class _Read(msgspec.Struct):
    """What is read of an event. The decoder checks that the rest is JSON."""

    error: Any = None
    type: Any = None
    response: Any = None


_decode = msgspec.json.Decoder(_Read).decode


class BrokenStream(NamedTuple):
    """Why a stream is not whole. ``good``: how many bytes of the piece precede it. ``error``: the engine's own."""

    why: str
    good: int
    error: object = None

    @property
    def is_request(self) -> bool:
        """Whether the engine says that the request is at fault, by a code of HTTP."""
        code = self.error.get("code") if isinstance(self.error, dict) else None
        return isinstance(code, int) and 400 <= code < 500


class StreamCheck:
    """Reads a stream's events as they pass. ``ended``: the last event has passed."""

    __slots__ = ("_form", "_torn", "ended")

    def __init__(self, form: StreamForm) -> None:
        self._form = form
        self._torn = False
        self.ended = False

    def look(self, piece: bytes) -> BrokenStream | None:
        """Look at whole events, or at a part of an event that is too large to be held."""
        if piece[:7] == b"data: {" and piece[-3:] == b"}\n\n" and piece.count(b"\n") == 2 and not self._torn:
            try:
                event = _decode(piece[6:-2])
            except (ValueError, RecursionError):
                return self._look_at_each(piece)
            if event.error is None and event.type is None:
                return None
        return self._look_at_each(piece)

    def end(self, rest: bytes, until_close: bool) -> BrokenStream | None:
        """Look at the last piece, whose last event may lack its blank line.

        A stream that lasts until the connection closes must have had its last event.
        """
        problem = self.look(rest) if rest and not self.ended else None
        if problem is None and until_close and not self.ended:
            problem = BrokenStream("closed its stream before the end", len(rest) if rest.endswith(ENDS) else 0)
        return problem

    def _look_at_each(self, piece: bytes) -> BrokenStream | None:
        good = 0
        skips, self._torn = self._torn, not piece.endswith(ENDS) and len(piece) > 1 << 20
        for event in read_events(piece):
            if skips or (self._torn and event.end == len(piece)):
                skips = False
            elif event.data is not None and not self.ended:
                problem = self._problem(event.data, good)
                if problem is not None:
                    return problem
            good = event.end
        return None

    def _problem(self, data: bytes, good: int) -> BrokenStream | None:
        if data.strip() == b"[DONE]":
            self.ended = self.ended or self._form.ends_as_done
            return None
        try:
            event = _decode(data)
        except (ValueError, RecursionError):
            return None
        kind, error = event.type, event.error
        if error is None and isinstance(event.response, dict):
            error = event.response.get("error")
        if error is not None or str(kind) in self._form.failed:
            error = msgspec.json.decode(data) if error is None else error
            return BrokenStream(f"broke its stream off with an error: {_message(error)}", good, error)
        self.ended = str(kind) in self._form.last
        return None


def _message(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else msgspec.json.encode(error).decode()
