"""The time of a run, and sets whose order does not depend on addresses in memory."""

from __future__ import annotations

from typing import Any

from enginehouse.aio.clock import Clock
from enginehouse_kit.virtual_loop import VirtualTime

clock = VirtualTime()


def gateway_clock(time: VirtualTime) -> Clock:
    """The clock that gateways get."""
    return Clock(lambda: time.now, lambda: 1_700_000_000.0 + time.now)


GATEWAY_CLOCK = gateway_clock(clock)


class OrderedSet(dict[Any, None]):
    """A set that is walked through in the order of insertion, wherever its members are in memory."""

    def add(self, member: Any) -> None:
        self[member] = None

    def discard(self, member: Any) -> None:
        self.pop(member, None)

    def remove(self, member: Any) -> None:
        del self[member]
