"""What the gateway knows of requests that have ended, and of its last decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from enginehouse.domain.errors import RequestError, shortened
from enginehouse.domain.explanation import PrefixFacts, RouteDetails
from enginehouse.domain.replica import Reason, Route
from enginehouse.domain.request import Headers, RepeatedHeaders
from enginehouse.domain.request_record import AttemptRecord, EndedRequest, EngineTimings, RequestRecord, StreamGap

_STEPS: Final = frozenset({"granted", "sent", "first_byte"})


class AttemptFacts:
    """A try of a request that has ended. The fields are those of ``AttemptRecord``; a time is 0 without its step."""

    __slots__ = AttemptRecord.__struct_fields__

    backend: str
    driver: str
    replica: str
    model: str
    reason: Reason
    attempted: tuple[str, ...]
    outcome: str
    why: str
    status: int
    queued: bool
    began: float
    granted: float
    sent: float
    first_byte: float
    ended: float
    details: RouteDetails | None
    gap: StreamGap | None
    prefix: PrefixFacts | None

    def record(self) -> AttemptRecord:
        """The same as a record."""
        return AttemptRecord(*[_known(self, name) for name in AttemptRecord.__struct_fields__])


class RequestFacts:
    """A request that has ended: what every request pays for reads this, and observers get a record that is made of it.

    Compiled code reads a field of a record in 10 ns, and one of this in less than 1. The fields are those of
    ``RequestRecord``; a time is 0 without its step. These follow from ``attempts``:

    - ``reason``: the last one's.
    - ``queued``: whether the backend of the first one has a queue. It waited there for ``queue_wait`` seconds.
    - ``first_granted`` and ``first_sent``: when that happened to the first one; ``granted`` and ``sent``: to any one.
    - ``answered``, sent at ``answered_sent``, gave the client its first byte; without one, it is the last one.
    """

    __slots__ = (
        *RequestRecord.__struct_fields__,
        "_record",
        "answered",
        "answered_sent",
        "first_granted",
        "first_sent",
        "queue_wait",
        "queued",
        "reason",
    )

    id: str
    method: str
    path: str
    status: int
    outcome: str
    arrived: float
    ended: float
    caller: str | None
    user: str | None
    moves: int
    bytes_in: int
    bytes_out: int
    events: int
    attempts: list[AttemptFacts]

    def __init__(self, attempts: list[AttemptFacts], ended: float) -> None:
        """``attempts``: all, in order; without one, the request ``ended`` at that time."""
        self.attempts = attempts
        self.ended = ended
        self.asked: str | None = None
        self.model: str | None = None
        self.backend: str | None = None
        self.driver: str | None = None
        self.code: str | None = None
        self.message = ""
        self.stream = False
        self.routed = self.granted = self.sent = self.first_byte = 0.0
        self.tokens_in: int | None = None
        self.tokens_cached: int | None = None
        self.tokens_out: int | None = None
        self.trace_id: str | None = None
        self.timings: EngineTimings | None = None
        self.prefix: PrefixFacts | None = None
        self.reason = ""
        self.queued = False
        self.queue_wait = self.first_granted = self.first_sent = self.answered_sent = 0.0
        self.answered: AttemptFacts | None = None
        self.time = 0.0
        self._record: RequestRecord | None = None
        if not attempts:
            return
        first = answered = last = attempts[-1]
        self.ended = last.ended
        self.model, self.backend, self.driver = last.model, last.backend, last.driver
        self.reason = last.reason._value_  # .value takes 0.2 us in Python 3.10
        if len(attempts) > 1:
            first, answered = min(attempts, key=_began), _first_answered(attempts)
        self.routed, self.queued = first.began, first.queued
        self.first_granted, self.first_sent = self.granted, self.sent = first.granted, first.sent
        if first.queued:
            self.queue_wait = (first.granted or first.ended) - first.began
        if len(attempts) > 1:
            self.granted = min((each.granted for each in attempts if each.granted), default=0.0)
            self.sent = min((each.sent for each in attempts if each.sent), default=0.0)
        self.answered, self.answered_sent, self.first_byte = answered, answered.sent, answered.first_byte
        self.prefix = answered.prefix

    def record(self) -> RequestRecord:
        """The same as a record, made once."""
        if self._record is None:
            facts: dict[str, Any] = {name: _known(self, name) for name in RequestRecord.__struct_fields__}
            facts["attempts"] = tuple([each.record() for each in self.attempts])
            if not self.attempts:
                facts["routed"] = None
            self._record = RequestRecord(**facts)
        return self._record


def _known(facts: AttemptFacts | RequestFacts, name: str) -> Any:
    """A field as records have it: without a step its time is ``None``."""
    value = getattr(facts, name)
    return None if not value and name in _STEPS else value


def _began(attempt: AttemptFacts) -> float:
    return attempt.began


def _first_answered(attempts: list[AttemptFacts]) -> AttemptFacts:
    """The attempt that gave the client its first byte, whichever others continued its stream; else the last one."""
    for each in attempts:
        if each.first_byte and each.outcome != "answered":
            return each
    return attempts[-1]


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
        self.count = self._last = 0

    def add(self, at: float, facts: RequestFacts, headers: Headers, address: str) -> None:
        """Remember a request that came with ``headers`` from ``address`` and ended ``at`` this time of day."""
        self.count += 1
        self._last += 1
        if not isinstance(headers, RepeatedHeaders):  # those are few bytes
            headers = _cut(headers)
        self._ring.append((self._last, at, facts, headers, address))

    def since(self, number: int) -> list[EndedRequest]:
        """Those of a later ``number``, oldest first, as far as they are remembered."""
        return [_ended(*each) for each in self._ring if each[0] > number]

    def tell(self, count: int, ended: Iterable[EndedRequest]) -> None:
        """Add ``count`` requests that ended in another process, and remember ``ended``, some that did."""
        self.count += count
        new = [(number, *each[1:]) for number, each in enumerate(ended, self._last + 1)]
        self._last += len(new)
        self._ring = deque(sorted([*self._ring, *new], key=itemgetter(1)), self._ring.maxlen)

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
