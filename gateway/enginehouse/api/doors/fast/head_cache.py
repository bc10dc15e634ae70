"""The heads that a client repeats on its connection."""

from __future__ import annotations

from typing import Final

from enginehouse.api.doors.admission import is_from_browser
from enginehouse.api.doors.fast.inbound import Inbound
from enginehouse.domain.request import Headers
from enginehouse.relay.heads.headers import again, learned
from enginehouse.relay.heads.known_head import KnownHead
from enginehouse.relay.heads.repeated_headers import RepeatedHeaders

_TRACE_NAMES: Final[tuple[bytes, ...]] = (b"\r\ntraceparent: ", b"\r\nTraceparent: ")
_TRACE_LENGTH: Final = 55


class HeadCache:
    """Knows the head of a connection's last hot requests, if it came twice.

    Traced clients send another ``traceparent`` each time, so its value may differ: nothing was decided by it, and what
    takes its place has the same length and cannot end the line. ``_trace_at``: where the value begins; 0 without it.
    ``_trace_to_end``: how many bytes of the head follow it if Content-Length precedes it, whose digits move it.
    """

    __slots__ = ("_known", "_path", "_trace_at", "_trace_to_end")

    def __init__(self) -> None:
        self._known: KnownHead[RepeatedHeaders] = KnownHead()
        self._path = ""
        self._trace_at = self._trace_to_end = 0

    def read(self, data: bytes) -> tuple[str, Headers, bytes] | None:
        """The path, the headers and the body of the request ``data``; ``None`` unless its head is known."""
        traceparent, at = b"", self._trace_at
        if at:
            if self._trace_to_end:
                at = len(self._known.expected(len(data) - _TRACE_LENGTH)) - self._trace_to_end
            if at <= 0 or not _is_plain(traceparent := data[at : at + _TRACE_LENGTH]):
                return None
            data = data[:at] + data[at + _TRACE_LENGTH :]
        known = self._known.read(data)
        if known is None:
            return None
        headers, body = known
        return self._path, again(headers, len(body), traceparent or headers.traceparent), body

    def learn(self, data: bytes, inbound: Inbound) -> None:
        """Learn from ``data``, of which the parser read ``inbound`` from the first byte to the last."""
        if not inbound.may_repeat:
            return
        at = _trace_place(data)
        rest = data[:at] + data[at + _TRACE_LENGTH :] if at else data
        if not self._known.see(rest):
            return
        headers = learned(inbound.headers)
        if is_from_browser(headers) or (at and data[at : at + _TRACE_LENGTH] != headers.traceparent):
            return
        self._known.learn(headers)
        self._path, self._trace_at = inbound.path, at
        behind = headers.facts.trace_at > headers.facts.length_at
        self._trace_to_end = rest.find(b"\r\n\r\n") + 4 - at if behind else 0


def _trace_place(data: bytes) -> int:
    """Where the value of ``traceparent`` begins in the head of ``data``; 0 if there is none that may differ."""
    end = data.find(b"\r\n\r\n")
    for name in _TRACE_NAMES:
        at = data.find(name, 0, end) + len(name)
        if at >= len(name):
            stop = at + _TRACE_LENGTH
            return at if data.startswith(b"\r\n", stop) and _is_plain(data[at:stop]) else 0
    return 0


def _is_plain(traceparent: bytes) -> bool:
    """Whether it has the length of a ``traceparent``, and nothing but letters, digits and dashes."""
    return len(traceparent) == _TRACE_LENGTH and traceparent.replace(b"-", b"").isalnum()
