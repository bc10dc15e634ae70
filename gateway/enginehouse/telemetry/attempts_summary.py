"""What the attempts of a request say together."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from enginehouse.domain.request_record import AttemptRecord

_began: Final = attrgetter("began")


class AttemptsSummary:
    """The attempts of a request, read once: compiled code takes 10 ns for each field of a struct.

    ``backend``, ``driver``, ``model``, ``reason`` and ``ended``: of the ``last`` one. ``routed``: when the first one
    began, which was granted and sent at ``first_granted`` and ``first_sent``. ``queue_wait``: how long that waited, if
    its backend has a queue. ``granted`` and ``sent``: when any one was. ``answered``, sent at ``answered_sent``, gave
    the client its first byte at ``first_byte``.
    """

    __slots__ = (
        "answered",
        "answered_sent",
        "backend",
        "driver",
        "ended",
        "first_byte",
        "first_granted",
        "first_sent",
        "granted",
        "last",
        "model",
        "queue_wait",
        "reason",
        "routed",
        "sent",
    )

    def __init__(self, attempts: Sequence[AttemptRecord]) -> None:
        self.last = last = attempts[-1]
        self.backend = last.backend
        self.driver = last.driver
        self.model = last.model
        self.reason: str = last.reason._value_  # .value takes 0.2 us in Python 3.10
        self.ended = last.ended
        first = self.answered = last
        several = len(attempts) > 1
        if several:
            first, self.answered = min(attempts, key=_began), first_answered(attempts)
        self.routed = routed = first.began
        granted, sent = first.granted, first.sent
        self.first_granted = self.granted = granted
        self.first_sent = self.sent = self.answered_sent = sent
        self.first_byte = self.answered.first_byte
        self.queue_wait: float | None = None
        if first.queued:
            self.queue_wait = (granted if granted is not None else first.ended) - routed
        if several:
            self.granted = min((each.granted for each in attempts if each.granted is not None), default=None)
            self.sent = min((each.sent for each in attempts if each.sent is not None), default=None)
            self.answered_sent = self.answered.sent


def first_answered(attempts: Sequence[AttemptRecord]) -> AttemptRecord:
    """The attempt that gave the client its first byte, whichever others continued its stream; else the last one."""
    for each in attempts:
        if each.first_byte is not None and each.outcome != "answered":
            return each
    return attempts[-1]
