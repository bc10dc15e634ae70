"""The last requests that have ended, and the last decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from enginehouse.domain.errors import RequestError, shortened
from enginehouse.domain.replica import Route
from enginehouse.domain.request import Headers, RepeatedHeaders
from enginehouse.domain.request_facts import RequestFacts
from enginehouse.domain.request_record import EndedRequest, RequestRecord

MOST: Final = 1000
"""The number of requests, and of decisions, that are remembered."""
_LARGE: Final = 4096
"""The bytes of a head that is remembered whole."""
_LONGEST: Final = 256
_MOST_HEADERS: Final = 32
_Decision = tuple[bytes, "str | None", str, "Route | dict[str, Any]"]
"""The id of a request, its caller, the model that it asked for, and its route or error."""


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


class Decisions:
    """The last decisions. Routes are formatted only on request.

    ``epoch`` tells the time of day in seconds.

    An error is stored as its envelope. The exception itself would keep its traceback, and with it the request's body.
    """

    def __init__(self, epoch: Callable[[], float], most: int = MOST) -> None:
        self._epoch = epoch
        self._ring: deque[tuple[float, _Decision | dict[str, Any]]] = deque(maxlen=most)

    def routed(self, request_id: bytes, caller: str | None, route: Route) -> None:
        """Store the route of a request that came with the key ``caller``."""
        self._ring.append((self._epoch(), (request_id, caller, route.requested, route)))

    def refused(self, request_id: bytes, caller: str | None, requested: str, error: RequestError) -> None:
        """Store the error that refused a request for the model ``requested``."""
        refused = request_id, caller, shortened(requested), error.envelope()["error"]
        self._ring.append((self._epoch(), refused))

    def last(self, most: int) -> list[dict[str, Any]]:
        """At most ``most`` decisions, newest first, as ``GET /api/decisions`` shows them."""
        newest = list(self._ring)[-most:] if most > 0 else []
        return [each if isinstance(each, dict) else _as_data(at, *each) for at, each in newest[::-1]]

    def tell(self, decisions: Sequence[dict[str, Any]]) -> None:
        """Add decisions of another process, as ``last`` returned them there."""
        told = [(each["time"], each) for each in decisions]
        self._ring = deque(sorted([*self._ring, *told], key=itemgetter(0)), self._ring.maxlen)

    def drain(self) -> list[dict[str, Any]]:
        """Remove and return all decisions, newest first."""
        found = self.last(MOST)
        self._ring.clear()
        return found


def _as_data(
    at: float, request_id: bytes, caller: str | None, requested: str, decision: Route | dict[str, Any]
) -> dict[str, Any]:
    data: dict[str, Any] = {"time": at, "request_id": request_id.decode(), "caller": caller}
    data["requested"] = shortened(requested)
    if isinstance(decision, Route):
        return data | {
            "resolved": decision.model,
            "reason": decision.reason.value,
            "attempted": list(decision.attempted),
            "chosen": decision.chosen.replica,
            **({"prefill": decision.prefill.replica} if decision.prefill is not None else {}),
            "error": None,
        }
    attempted = decision["details"].get("attempted", [requested])
    return data | {"resolved": None, "reason": None, "attempted": attempted, "chosen": None, "error": decision}
