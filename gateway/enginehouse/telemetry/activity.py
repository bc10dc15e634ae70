"""The figures of the last requests that have ended, for ``GET /api/history``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import EngineTimings, RequestRecord
from enginehouse.telemetry.request_facts import RequestFacts

MOST: Final = 1000
"""The number of requests that are remembered."""
_NO_TIMINGS: Final = EngineTimings()


class EndedRequest(NamedTuple):
    """A request that has ended. ``number``: how many ended before it, and itself. ``time``: when, since the epoch."""

    number: int
    time: float
    record: RequestRecord
    headers: Headers
    address: str


class Activity:
    """The last requests, without their contents. Their rows are made only on request.

    ``count``: the requests that have ended so far.
    """

    def __init__(self, most: int = MOST) -> None:
        self._ring: deque[tuple[int, float, RequestFacts | RequestRecord, Headers, str]] = deque(maxlen=most)
        self.count = 0

    def add(self, at: float, facts: RequestFacts, headers: Headers, address: str) -> None:
        """Remember a request that came with ``headers`` from ``address`` and ended ``at`` this time of day."""
        self.count += 1
        self._ring.append((self.count, at, facts, headers, address))

    def since(self, number: int) -> list[EndedRequest]:
        """Those of a later ``number``, oldest first, as far as they are remembered."""
        return [_ended(*each) for each in self._ring if each[0] > number]

    def tell(self, count: int, ended: Iterable[EndedRequest]) -> None:
        """Add ``count`` requests that ended in another process, and remember ``ended``, some that did."""
        self.count += count
        kept = sorted([*self._ring, *ended], key=itemgetter(1))[-(self._ring.maxlen or 0) :]
        first = self.count - len(kept) + 1
        self._ring = deque([(first + place, *each[1:]) for place, each in enumerate(kept)], self._ring.maxlen)

    def newest_first(self) -> Iterator[EndedRequest]:
        """All that are remembered."""
        return (_ended(*each) for each in reversed(self._ring))


def _ended(number: int, at: float, known: RequestFacts | RequestRecord, headers: Headers, address: str) -> EndedRequest:
    record = known.record() if isinstance(known, RequestFacts) else known
    return EndedRequest(number, at, record, headers, address)


def activity_row(ended: EndedRequest, session_headers: Sequence[str]) -> dict[str, Any]:
    """``ended`` as ``GET /api/history`` shows it: its record, and figures that follow from it.

    ``session_headers``: those that name the session of a request, the first one that it has. No other header but
    ``user-agent`` is shown.
    """
    record = ended.record
    row: dict[str, Any] = msgspec.to_builtins(record)
    del row["timings"]
    return row | {
        "number": ended.number,
        "time": round(ended.time, 3),
        "address": ended.address,
        "agent": _header(ended.headers, "user-agent"),
        "session": next(filter(None, (_header(ended.headers, name) for name in session_headers)), None),
        "retries": max(0, len(record.attempts) - 1),
        **_figures(record),
    }


def _figures(record: RequestRecord) -> dict[str, Any]:
    """Times in milliseconds, rates in tokens a second: the engine's own, or else as the gateway saw them."""
    timings = record.timings or _NO_TIMINGS
    computed = None if record.tokens_in is None else record.tokens_in - (record.tokens_cached or 0)
    written = record.tokens_out if record.tokens_out is not None else record.events  # one event has one token, mostly
    return {
        "duration_ms": _milliseconds(record.arrived, record.ended),
        "wait_ms": _milliseconds(record.arrived, record.sent),
        "ttft_ms": _milliseconds(record.arrived, record.first_byte) if record.stream else None,
        "prefill_rate": timings.prefill_rate or _rate(computed, record.sent, record.first_byte, record.stream),
        "decode_rate": timings.decode_rate or _rate(written - 1, record.first_byte, record.ended, record.stream),
        "tokens_drafted": timings.drafted,
        "tokens_accepted": timings.accepted,
    }


def _milliseconds(began: float | None, ended: float | None) -> float | None:
    return None if began is None or ended is None else round((ended - began) * 1000, 1)


def _rate(tokens: int | None, began: float | None, ended: float | None, known: bool) -> float | None:
    """Tokens a second; ``None`` if the times of these are not ``known``, as those of an answer that came whole."""
    if not known or tokens is None or tokens <= 0 or began is None or ended is None or ended <= began:
        return None
    return round(tokens / (ended - began), 2)


def _header(headers: Headers, name: str) -> str | None:
    wanted = name.lower().encode()
    return next((value.decode(errors="replace") for each, value in headers if each == wanted), None)
