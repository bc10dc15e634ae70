"""What the attempts of a request say together."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from enginehouse.domain.request_record import AttemptRecord

_began: Final = attrgetter("began")


class AttemptsSummary:
    """The attempts of a request, read once: compiled code takes 10 ns for each field of a struct.

    ``backend``, ``driver``, ``model`` and ``reason``: of the last attempt. ``routed``: when the ``first`` one began; it
    was granted and sent at ``first_granted`` and ``first_sent``. ``granted`` and ``sent``: when any one was. The client
    got its first byte from ``answered``, at ``first_byte``.
    """

    __slots__ = (
        "answered",
        "backend",
        "driver",
        "first",
        "first_byte",
        "first_granted",
        "first_sent",
        "granted",
        "model",
        "reason",
        "routed",
        "sent",
    )

    def __init__(self, attempts: Sequence[AttemptRecord]) -> None:
        last = first = answered = attempts[-1]
        if len(attempts) > 1:
            first, answered = min(attempts, key=_began), first_answered(attempts)
        self.backend = last.backend
        self.driver = last.driver
        self.model = last.model
        self.reason: str = last.reason._value_  # .value takes 0.2 us in Python 3.10
        self.first = first
        self.routed = first.began
        self.granted = self.first_granted = first.granted
        self.sent = self.first_sent = first.sent
        self.answered = answered
        self.first_byte = answered.first_byte
        if len(attempts) > 1:
            self.granted = min((each.granted for each in attempts if each.granted is not None), default=None)
            self.sent = min((each.sent for each in attempts if each.sent is not None), default=None)


def first_answered(attempts: Sequence[AttemptRecord]) -> AttemptRecord:
    """The attempt that gave the client its first byte, whichever others continued its stream; else the last one."""
    for each in attempts:
        if each.first_byte is not None and each.outcome != "answered":
            return each
    return attempts[-1]
