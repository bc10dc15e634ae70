"""Counts an answer while it passes: its bytes, its events, and its tokens."""

from __future__ import annotations

from typing import Final

from enginehouse.telemetry.record import AnswerSize, Tokens
from enginehouse.telemetry.usage import Usage, decode_counted

_TAIL: Final = 4096
"""The length of the end of an answer that is searched for ``usage``, in bytes."""
_MOST_UNREAD: Final = 16 * 1024
"""In bytes: so many of a stream are kept, and then read together."""
_KEY: Final = b'"usage"'
_MOST_TRIES: Final = 4
"""``usage`` may be in an event of a stream, and two objects deep."""


class AnswerMeter:
    """Counts an answer that comes in pieces, as far as it has passed. Pieces of a ``stream`` are counted together.

    ``pieces``: those that have passed and are not counted yet; at ``most`` bytes should wait for ``read``.
    """

    __slots__ = ("_events", "_first", "_sent", "_size", "_stream", "_tail", "most", "pieces")

    def __init__(self, stream: bool) -> None:
        self.pieces: list[bytes] = []
        self.most = _MOST_UNREAD if stream else 0
        self._size = 0
        self._stream = stream
        self._sent = self._events = 0
        self._first = self._tail = b""

    def add(self, piece: bytes) -> None:
        """Count a piece of the answer."""
        self.pieces.append(piece)
        self._size += len(piece)
        if self._size > self.most:
            self.read()

    def read(self) -> None:
        """Count the pieces that have passed."""
        self._size = 0
        joined = b"".join(self.pieces)
        self.pieces.clear()
        self._sent += len(joined)
        self._tail = joined[-_TAIL:] if len(joined) >= _TAIL else (self._tail + joined)[-_TAIL:]
        if self._stream:
            self._events += joined.count(b"\n\n")
            self._first = self._first or joined[:_TAIL]

    def total(self) -> AnswerSize:
        """The size of the answer as it is now."""
        if self.pieces:
            self.read()
        return self._sent, self._events, read_tokens(self._tail, self._first)


def read_tokens(tail: bytes, first: bytes = b"") -> Tokens | None:
    """The tokens in the last ``usage`` of an answer's end, found without decoding the rest; ``None`` without one.

    Anthropic's streams tell the prompt's tokens at their beginning, in ``first``.
    """
    usage = _usage_at(tail, tail.rfind(_KEY, -_TAIL))
    if usage is None:
        return None
    prompt, cached = usage.prompt()
    if not prompt and first and (began := _usage_at(first, first.find(_KEY))) is not None:
        prompt, cached = began.prompt()
    return Tokens(prompt, usage.completion_tokens or usage.output_tokens, cached)


def _usage_at(text: bytes, at: int) -> Usage | None:
    """The object after the key at ``at``. In the texts of an answer the quotes are escaped, so it is a key."""
    if at < 0:
        return None
    rest = b"{" + text[at:]
    for _ in range(_MOST_TRIES):
        if (usage := _decoded(rest)) is not None:
            return usage
        rest = rest.rstrip()
        rest = rest[: rest.find(b"\n")] if b"\n" in rest else rest[:-1]
    return None


def _decoded(text: bytes) -> Usage | None:
    """The counts in ``text``; ``None`` if it is no JSON object that has them."""
    try:
        return decode_counted(text).usage
    except (ValueError, RecursionError):
        return None
