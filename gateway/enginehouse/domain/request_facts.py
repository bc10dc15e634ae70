"""What the gateway knows of a request that has ended, as it is made for every request."""

from __future__ import annotations

from typing import Any, Final

from enginehouse.domain.explanation import PrefixFacts, RouteDetails
from enginehouse.domain.replica import Reason
from enginehouse.domain.request_record import AttemptRecord, EngineTimings, RequestRecord, StreamGap

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
