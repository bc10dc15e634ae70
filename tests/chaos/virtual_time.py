"""The time of a run, and sets whose order does not depend on addresses in memory."""

from __future__ import annotations

from typing import Any

from enginehouse.app.virtual.virtual_loop import VirtualTime

clock = VirtualTime()
GATEWAY_CLOCK = clock.clock(epoch=1_700_000_000.0)
"""The clock that gateways get."""


class OrderedSet(dict[Any, None]):
    """A set that is walked through in the order of insertion, wherever its members are in memory."""

    def add(self, member: Any) -> None:
        self[member] = None

    def discard(self, member: Any) -> None:
        self.pop(member, None)

    def remove(self, member: Any) -> None:
        del self[member]
