"""Counts an answer while it passes: its bytes, its events, and its tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from enginehouse.domain.request_record import EngineTimings
from enginehouse.telemetry.counted_answers import Counted, Usage, decode_counted, decode_ending

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
_MOST_TRIES: Final = 4
"""``usage`` may be in an event of a stream, and two objects deep."""


@dataclass(init=False)
class Tokens:
    """The tokens of a request, as its engine counted them. ``cached``: of the prompt, if the engine says so."""

    input: int
    output: int
    cached: int | None
    timings: EngineTimings | None

    def __init__(
        self, input: int, output: int, cached: int | None = None, timings: EngineTimings | None = None
    ) -> None:
        self.input = input
        self.output = output
        self.cached = cached
        self.timings = timings


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
        return self._sent, events, read_tokens(self._tail, self._first)

    def ends(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the answer so far, as ``answer_ends`` of a whole one."""
        if self.pieces:
            self.read()
        return self._first[:_END], self._tail[-_END:]


def answer_ends(answer: bytes) -> tuple[bytes, bytes]:
    """The parts of an answer in which engines say which model answered, and why it ended."""
    return answer[:_END], answer[-_END:]


def read_tokens(tail: bytes, first: bytes = b"", found: Counted | None = None) -> Tokens | None:
    """The tokens in the last ``usage`` of an answer's end, found without decoding the rest; ``None`` without one.

    Anthropic's streams tell the prompt's tokens at their beginning, in ``first``. ``found``: in the answer as a whole.
    """
    usage = None if found is None else found.usage
    if usage is None:
        found = _counted_at(tail, tail.rfind(_KEY, -_TAIL))
        usage = None if found is None else found.usage
        if usage is None:
            return _read_timings(tail)
    prompt, cached = _of_prompt(usage)
    if not prompt and first:
        began = _counted_at(first, first.find(_KEY))
        if began is not None and began.usage is not None:
            prompt, cached = _of_prompt(began.usage)
    timings = found.timings.measured() if found is not None and found.timings is not None else None
    return Tokens(prompt, usage.completion_tokens or usage.output_tokens, cached, timings)


def _of_prompt(usage: Usage) -> tuple[int, int | None]:
    """The tokens of the prompt, and those of them that the engine had in its cache, if it says so."""
    read = usage.cache_read_input_tokens
    if read is not None:  # Anthropic's input_tokens are only those after the cache
        return usage.input_tokens + read + (usage.cache_creation_input_tokens or 0), read
    details = usage.prompt_tokens_details or usage.input_tokens_details
    return usage.prompt_tokens or usage.input_tokens, details.cached_tokens if details is not None else None


def _read_timings(tail: bytes) -> Tokens | None:
    """The tokens in the last ``timings``, as llama-server's streams end with; ``None`` without one."""
    found = _counted_at(tail, tail.rfind(_TIMINGS, -_END))
    if found is None or (timings := found.timings) is None:
        return None
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


def _counted_at(text: bytes, at: int) -> Counted | None:
    """The object after the key at ``at``. In the texts of an answer the quotes are escaped, so it is a key."""
    if at < 0:
        return None
    rest = b"{" + text[at:]
    for _ in range(_MOST_TRIES):
        if (counted := _decoded(rest)) is not None:
            return counted
        rest = rest.rstrip()
        rest = rest[: rest.find(b"\n")] if b"\n" in rest else rest[:-1]
    return None


def _decoded(text: bytes) -> Counted | None:
    """The counts in ``text``; ``None`` if it is no JSON object that has them."""
    try:
        counted = decode_counted(text)
        return counted if counted.usage is not None or counted.timings is not None else None
    except (ValueError, RecursionError):
        return None
