"""The last requests that have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

from enginehouse.domain.repeated_headers import RepeatedHeaders
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import EndedRequest, RequestRecord
from enginehouse.telemetry.request_facts import RequestFacts

MOST: Final = 1000
"""The number of requests that are remembered."""
_LARGE: Final = 4096
"""The bytes of a head that is remembered whole."""
_LONGEST: Final = 256
_MOST_HEADERS: Final = 32


class Activity:
    """The last requests, without their contents.

    ``count``: the requests that have ended so far.
    """

    def __init__(self, most: int = MOST) -> None:
        self._ring: deque[tuple[int, float, RequestFacts | RequestRecord, Headers, str]] = deque(maxlen=most)
        self.count = 0

    def add(self, at: float, facts: RequestFacts, headers: Headers, address: str) -> None:
        """Remember a request that came with ``headers`` from ``address`` and ended ``at`` this time of day."""
        self.count += 1
        if not isinstance(headers, RepeatedHeaders):  # those are few bytes
            headers = _cut(headers)
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


def _cut(headers: Headers) -> Headers:
    if len(headers) <= _MOST_HEADERS:
        size = 0
        for name, value in headers:
            size += len(name) + len(value)
        if size <= _LARGE:
            return headers
    return [(name[:_LONGEST], value[:_LONGEST]) for name, value in headers[:_MOST_HEADERS]]


def _ended(number: int, at: float, known: RequestFacts | RequestRecord, headers: Headers, address: str) -> EndedRequest:
    record = known.record() if isinstance(known, RequestFacts) else known
    return EndedRequest(number, at, record, headers, address)
