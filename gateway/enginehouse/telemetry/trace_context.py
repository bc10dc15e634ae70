"""W3C Trace Context: reads the trace of a client's request, and writes the one for an engine."""

from __future__ import annotations

import re
from os import urandom
from random import getrandbits
from typing import Final

from enginehouse.domain.explanation import RouteDetails
from enginehouse.domain.request import Headers

_TRACEPARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_LENGTH: Final = 55
_DASH: Final = ord("-")
_DIGITS: Final = b"0123456789abcdef"
_NO_TRACE: Final = b"0" * 32
_NO_SPAN: Final = b"0" * 16
_OWN_BITS: Final = 46
_ROOM_BITS: Final = 15
"""The ids of the spans below the root follow its own. All of them are small enough for a machine's integer."""
_IDS: Final = 24
"""The bytes of the ids of a trace and of a span."""
_IDS_AT_ONCE: Final = 256
_SAMPLED: Final = frozenset(b"13579bdf")
"""The last digit of the flags of a sampled trace."""
SPANS_PER_ATTEMPT: Final = 8
"""The number of span numbers for each attempt."""
UPSTREAM_SPAN: Final = 3
"""The index, in an attempt, of the span of the call to its engine, which has got that number."""
MOST_CAPTURED = 256 * 1024
"""The most bytes of a prompt, and of an answer, that a trace may have."""


def capture(kept: bytearray, piece: bytes) -> None:
    """Add a piece of an answer to what is ``kept`` of it."""
    kept += piece[: MOST_CAPTURED - len(kept)]


class Parent:
    """The client's span: its ids in hexadecimal digits."""

    __slots__ = ("sampled", "span_id", "trace_id")

    def __init__(self, trace_id: bytes, span_id: bytes, sampled: bool) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.sampled = sampled


def find_traceparent(headers: Headers) -> bytes:
    """The value of ``traceparent``; empty if there is none, or several."""
    found: bytes | None = None
    for name, value in headers:
        if name == b"traceparent":
            if found is not None:
                return b""
            found = value
    return found or b""


def read_traceparent(value: bytes) -> Parent | None:
    """The client's span; ``None`` if ``value`` is malformed (W3C Trace Context, 3.2)."""
    if len(value) == _LENGTH and value.startswith(b"00-") and value.translate(None, _DIGITS) == b"---":
        trace_id, span_id, flags = value[3:35], value[36:52], value[53:]
        if value[35] == value[52] == _DASH and trace_id != _NO_TRACE and span_id != _NO_SPAN:
            return Parent(trace_id, span_id, flags[1] in _SAMPLED)
        return None
    return _read_other_version(value)


def _read_other_version(value: bytes) -> Parent | None:
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if more and version == b"00":
        return None
    return Parent(trace_id, span_id, flags[1] in _SAMPLED)


def span_number(root: int, attempt: int, place: int) -> int:
    """The id of a span below ``root``: of the attempt with that number, at one of its places, from 0 on."""
    return root + 1 + attempt * SPANS_PER_ATTEMPT + place


class Trace:
    """A traced request's own span, whose id is ``root``. The ids of the spans below follow from it.

    ``parent``: the client's span, if the trace continues it. ``link``: the client's span, if it does not. ``state``:
    the client's ``tracestate``. ``captured``: the answer so far, only with ``telemetry.capture_content``. ``refused``:
    the figures of a decision that found no replica.
    """

    __slots__ = ("captured", "link", "parent", "refused", "root", "state", "trace_id")

    def __init__(self, parent: Parent | None = None, link: Parent | None = None, state: bytes = b"") -> None:
        self.trace_id = parent.trace_id if parent is not None else b"%032x" % (getrandbits(128) or 1)  # 0 is invalid
        self.root = getrandbits(_OWN_BITS) + 1 << _ROOM_BITS
        self.parent = parent
        self.link = link
        self.state = state
        self.captured: bytearray | None = None
        self.refused: RouteDetails | None = None

    def lines(self, attempt: int) -> bytes:
        """The header lines with the span of the ``attempt`` of that number, for an engine."""
        state = b"tracestate: %s\r\n" % self.state if self.state else b""
        number = span_number(self.root, attempt, UPSTREAM_SPAN)
        return b"traceparent: 00-%s-%016x-01\r\n%s" % (self.trace_id, number, state)


TRACE_HEADERS: Final = frozenset({b"traceparent", b"tracestate"})
"""The headers that name a span."""


class UnsampledLines:
    """Makes header lines by which an engine that follows its parent traces nothing. No span has their ids."""

    __slots__ = ("_at", "_digits")

    def __init__(self) -> None:
        self._digits = b""
        self._at = 0

    def next(self) -> bytes:
        """The line of another request. The random digits of many are made together, which takes a third of the time."""
        at, digits = self._at, self._digits
        if at >= len(digits):
            at, self._digits = 0, urandom(_IDS * _IDS_AT_ONCE).hex().encode()
            digits = self._digits
        self._at = at + 2 * _IDS
        return b"traceparent: 00-%b-%b-00\r\n" % (digits[at : at + 32], digits[at + 32 : at + 48])


def with_trace(headers: Headers, lines: bytes) -> Headers:
    """A client's headers with ``lines`` instead of its own trace."""
    own = [line.partition(b": ") for line in lines.splitlines()]
    kept = [pair for pair in headers if pair[0] not in TRACE_HEADERS]
    return kept + [(name, value) for name, _, value in own]
