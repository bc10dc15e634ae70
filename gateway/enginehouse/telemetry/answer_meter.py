"""Counts an answer while it passes: its bytes, its events, and its tokens."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from enginehouse.domain.tokens import Tokens
from enginehouse.telemetry.counted_answers import (
    Counted,
    Timings,
    Usage,
    decode_counted,
    decode_ending,
    decode_nested,
    read_usage,
)

_TAIL: Final = 4096
"""The length of the end of an answer that is searched for ``usage``, in bytes."""
_MOST_UNREAD: Final = 16 * 1024
"""In bytes: so many of a stream are kept, and then read together."""
_END: Final = 1024
_DATA: Final = b"\ndata:"
"""The beginning of an event's data, after a line end of any form. Comments have none."""
_KEY: Final = b'"usage"'
_TIMINGS: Final = b'"timings"'
_DONE: Final = b"[DONE]"
_TEXT: Final = re.compile(rb'"(?:content|text|reasoning|reasoning_content|arguments)"\s*:\s*"[^"]')
_BEGINS: Final = re.compile(rb'"role"\s*:\s*"')
_MOST_KEYS: Final = 8
"""Fields called ``usage`` that are looked at; all but one are in something that a client or a model wrote."""


AnswerSize = tuple[int, int, Tokens | None]
"""The bytes, the events and, if the engine counted them, the tokens of an answer, as far as the client got it."""
NO_ANSWER: Final[AnswerSize] = (0, 0, None)


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
        self._first = self._first or joined[:_TAIL]
        if self._stream:
            self._events += joined.count(_DATA) + joined.startswith(b"data:")

    def total(self) -> AnswerSize:
        """The size of the answer as it is now."""
        if self.pieces:
            self.read()
        events = max(0, self._events - _without_token(self._first, self._tail)) if self._stream else 0
        return self._sent, events, read_tokens(self._tail, self._first, nested=self._stream)

    @property
    def has_events(self) -> bool:
        """Whether a stream has had an event, after ``total``: comments are none."""
        return self._events > 0

    def ends(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the answer so far, as ``answer_ends`` of a whole one."""
        if self.pieces:
            self.read()
        return self._first[:_END], self._tail[-_END:]


def answer_ends(answer: bytes) -> tuple[bytes, bytes]:
    """The parts of an answer in which engines say which model answered, and why it ended."""
    return answer[:_END], answer[-_END:]


def read_tokens(tail: bytes, first: bytes = b"", *, nested: bool = False) -> Tokens | None:
    """The tokens in the ``usage`` of an answer's end, found without decoding the rest; ``None`` without one.

    Anthropic's streams tell the prompt's tokens at their beginning, in ``first``. ``nested``: they may be in an object
    of the last event, as OpenAI's Responses have them.
    """
    tail = tail[-_TAIL:]
    found = _last_counted(tail, _KEY, nested) or _last_counted(tail[-_END:], _TIMINGS, False)
    return None if found is None else tokens_in(found, first)


def tokens_in(counted: Counted, first: bytes = b"") -> Tokens | None:
    """The tokens of an answer that tells what was ``counted``; ``first``: its beginning, if it is a stream."""
    usage, timings = counted.usage, counted.timings
    if usage is None:
        return _timed(timings) if timings is not None else None
    prompt, cached = _of_prompt(usage)
    if not prompt and first:
        at = first.find(_KEY)
        began = _counted_at(first, at, True)
        if began is not None and began.usage is not None:
            prompt, cached = _of_prompt(began.usage)
    measured = timings.measured() if timings is not None else None
    return Tokens(prompt, usage.completion_tokens or usage.output_tokens, cached, measured)


def tokens_of(usage: object) -> Tokens | None:
    """The tokens in a decoded ``usage``; ``None`` if it has none."""
    try:
        counted = read_usage(usage)
    except msgspec.ValidationError:
        return None
    prompt, cached = _of_prompt(counted)
    return Tokens(prompt, counted.completion_tokens or counted.output_tokens, cached)


def _of_prompt(usage: Usage) -> tuple[int, int | None]:
    """The tokens of the prompt, and those of them that the engine had in its cache, if it says so."""
    read = usage.cache_read_input_tokens
    if read is not None:  # Anthropic's input_tokens are only those after the cache
        return usage.input_tokens + read + (usage.cache_creation_input_tokens or 0), read
    details = usage.prompt_tokens_details or usage.input_tokens_details
    return usage.prompt_tokens or usage.input_tokens, details.cached_tokens if details is not None else None


def _timed(timings: Timings) -> Tokens:
    """The tokens in ``timings``, as llama-server's streams end with."""
    prompt = timings.prompt_n + (timings.cache_n or 0)
    return Tokens(prompt, timings.predicted_n, timings.cache_n, timings.measured())


def _without_token(first: bytes, tail: bytes) -> int:
    """How many events of a stream have no token: ``[DONE]``, the usage, the reason of the end, the role."""
    begun = first.partition(b"data:")[2].partition(_DATA)[0]
    without = 1 if _BEGINS.search(begun) is not None and _TEXT.search(begun) is None else 0
    for event in tail.rsplit(b"data:", 3)[1:]:
        data = event.partition(b"\n")[0].strip()
        if data == _DONE or (_ends(data) and _TEXT.search(data) is None):
            without += 1
    return without


def _ends(data: bytes) -> bool:
    try:
        return decode_ending(data).ends
    except (ValueError, RecursionError):
        return False


def _last_counted(text: bytes, key: bytes, nested: bool) -> Counted | None:
    """The object that ends ``text``, or its last event, from its ``key`` on."""
    at = len(text)
    for _ in range(_MOST_KEYS):
        at = text.rfind(key, 0, at)
        if at < 0:
            return None
        if (counted := _counted_at(text, at, nested)) is not None:
            return counted
    return None


def _counted_at(text: bytes, at: int, nested: bool) -> Counted | None:
    """The object from the key at ``at`` on, if that is exactly as deep as it must be.

    In the texts of an answer the quotes are escaped, so it is a key. It may also be one of a client's metadata, of a
    tool's schema or of a call's arguments: those are deeper.
    """
    if at < 0:
        return None
    rest = text[at:].rstrip()
    for text in (rest, rest[:end].rstrip()) if (end := rest.find(b"\n")) > 0 else (rest,):
        if (counted := _decoded(text, nested)) is not None:
            return counted
    return None


def _decoded(rest: bytes, nested: bool) -> Counted | None:
    """The counts in the ``rest`` of an object; ``None`` if it has none, or does not end with it."""
    try:
        counted = decode_counted(b"{" + rest)
    except (ValueError, RecursionError):
        if not nested:
            return None
        try:
            counted = decode_nested(b'{"in":{' + rest).inner
        except (ValueError, RecursionError):
            return None
    return counted if counted.usage is not None or counted.timings is not None else None
