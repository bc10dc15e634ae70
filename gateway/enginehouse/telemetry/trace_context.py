"""W3C Trace Context: the trace that a client's request belongs to, and the one that an engine is told of."""

from __future__ import annotations

import re
from random import getrandbits
from typing import NamedTuple

from enginehouse.domain.request import Headers

_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_OWN_BITS = 48
SPANS_PER_ATTEMPT = 8
"""How many numbers the spans of one attempt may use."""


class Parent(NamedTuple):
    """The client's span."""

    trace_id: str
    span_id: str
    sampled: bool


def read_traceparent(value: bytes) -> Parent | None:
    """The client's span; ``None`` if ``value`` is malformed (W3C Trace Context, 3.2)."""
    match = _TRACEPARENT.fullmatch(value)
    if match is None or (match[1] == b"00" and match[5]):
        return None
    return Parent(match[2].decode(), match[3].decode(), bool(int(match[4], 16) & 1))


def span_number(root: int, attempt: int, place: int) -> int:
    """The id of a span below ``root``: of the attempt with that number, at one of its places, from 0 on."""
    return (root + 1 + attempt * SPANS_PER_ATTEMPT + place) % (1 << 64) or 1


class Trace:
    """A traced request's own span, whose id is ``root``. The ids of the spans below follow from it.

    ``link``: the client's span, if the trace does not continue it. ``attempt``: the number of the current attempt.
    ``captured``: the answer so far, only with ``telemetry.capture_content``.
    """

    __slots__ = ("attempt", "captured", "link", "parent", "root", "state", "trace_id")

    def __init__(self, parent: Parent | None = None, link: Parent | None = None, state: str = "") -> None:
        self.trace_id = parent.trace_id if parent is not None else f"{getrandbits(128) or 1:032x}"
        self.root = getrandbits(_OWN_BITS) + 1 << 64 - _OWN_BITS - 1
        self.parent = parent
        self.link = link
        self.state = state
        self.attempt = 0
        self.captured: bytearray | None = None

    def for_engine(self, headers: Headers) -> Headers:
        """A client's headers with the current attempt's span instead of the client's."""
        withheld = (b"traceparent",) if self.parent is not None else (b"traceparent", b"tracestate")
        own = f"00-{self.trace_id}-{span_number(self.root, self.attempt, UPSTREAM):016x}-01"
        return [pair for pair in headers if pair[0] not in withheld] + [(b"traceparent", own.encode())]


ROUTE, SCHEDULE, SWAP, UPSTREAM, BETWEEN = range(5)
"""The places of the spans of one attempt."""
