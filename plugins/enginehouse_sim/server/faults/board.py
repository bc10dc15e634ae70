"""The faults that are set."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from enginehouse import InvalidRequest, parse_duration
from enginehouse_sim.clock import Clock
from enginehouse_sim.server.call import Call
from enginehouse_sim.server.faults.kinds import AnyFault, Fault, Refuse


class Door(Protocol):
    """Where connections come in."""

    def refuse(self) -> None:
        """Refuse connections from now on."""

    async def accept(self) -> None:
        """Accept connections again."""


class SetFault:
    """A fault on the board: how many calls it has hit, and whether it was cleared."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.hits = 0
        self.cleared = asyncio.Event()

    @property
    def kind(self) -> str:
        """The fault's kind, as it was set."""
        return type(self.fault).__name__.lower()

    def takes(self, call: Call, inference: bool) -> bool:
        """Whether it hits ``call``, which is then counted."""
        if self.hits == self.fault.count or not self.fault.concerns(call, inference):
            return False
        self.hits += 1
        return True


class FaultBoard:
    """All faults that are set; the first that concerns a call hits it. ``door`` is set once the server listens."""

    def __init__(self, clock: Clock) -> None:
        self.door: Door | None = None
        self._clock = clock
        self._set: list[SetFault] = []
        self._reopening: asyncio.Task[None] | None = None

    def add(self, fault: AnyFault, can_be_cleared: bool) -> None:
        """Set a fault; ``can_be_cleared`` tells that clearing works while connections are refused.

        Raises ``InvalidRequest`` for one that could never be undone.
        """
        if isinstance(fault, Refuse):
            self._refuse(fault, can_be_cleared)
        self._set.append(SetFault(fault))

    def hit(self, call: Call, inference: bool) -> SetFault | None:
        """The fault that hits ``call``, if any."""
        return next((one for one in self._set if one.takes(call, inference)), None)

    async def clear(self) -> None:
        """Clear all faults, and let go of what they hold."""
        for one in self._set:
            one.cleared.set()
        refused = any(isinstance(one.fault, Refuse) for one in self._set)
        self._set.clear()
        self._stop_timer()
        if refused and self.door is not None:
            await self.door.accept()

    def listing(self) -> list[dict[str, Any]]:
        """The faults that are set, each with its number of hits."""
        return [{**msgspec.to_builtins(one.fault), "hits": one.hits} for one in self._set]

    def _refuse(self, fault: Refuse, can_be_cleared: bool) -> None:
        if fault.duration is None and not can_be_cleared:
            raise InvalidRequest("'refuse' needs a 'duration', or an engine started with --control-port to clear it")
        if self.door is not None:
            self.door.refuse()
        self._stop_timer()
        if fault.duration is not None:
            self._reopening = asyncio.create_task(self._clear_after(parse_duration(fault.duration)))

    def _stop_timer(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    async def _clear_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._set = [one for one in self._set if not isinstance(one.fault, Refuse)]
        if self.door is not None:
            await self.door.accept()
