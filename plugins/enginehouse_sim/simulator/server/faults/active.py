"""The active faults."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from enginehouse import InvalidRequest, parse_duration
from enginehouse_sim.simulator.server.engine.clock import Clock
from enginehouse_sim.simulator.server.faults.kinds import AnyFault, Fault, RefuseConnections
from enginehouse_sim.simulator.server.http.call import Call


class Refusable(Protocol):
    """A listener that can refuse connections."""

    def refuse(self) -> None: ...
    async def accept(self) -> None: ...


class ActiveFault:
    """An active fault with its number of hits. ``cleared`` is set when the fault is cleared."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.hits = 0
        self.cleared = asyncio.Event()

    @property
    def kind(self) -> str:
        return type(self.fault).__name__.lower()

    def try_hit(self, call: Call, inference: bool) -> bool:
        """Return whether the fault hits ``call``, and count the hit."""
        if self.hits == self.fault.count or not self.fault.concerns(call, inference):
            return False
        self.hits += 1
        return True


class ActiveFaults:
    """All active faults. The first one that concerns a call hits it. ``listener`` is set once the server listens."""

    def __init__(self, clock: Clock) -> None:
        self.listener: Refusable | None = None
        self._clock = clock
        self._set: list[ActiveFault] = []
        self._reopening: asyncio.Task[None] | None = None

    def add(self, fault: AnyFault, can_be_cleared: bool) -> None:
        """Activate a fault. ``can_be_cleared``: clearing works even while connections are refused.

        Raises ``InvalidRequest`` for one that could never be cleared.
        """
        if isinstance(fault, RefuseConnections):
            self._refuse(fault, can_be_cleared)
        self._set.append(ActiveFault(fault))

    def hit(self, call: Call, inference: bool) -> ActiveFault | None:
        """The fault that hits ``call``, if any."""
        return next((active for active in self._set if active.try_hit(call, inference)), None)

    async def clear(self) -> None:
        """Clear all faults, and release the calls that they hold."""
        for active in self._set:
            active.cleared.set()
        refused = any(isinstance(active.fault, RefuseConnections) for active in self._set)
        self._set.clear()
        self._stop_timer()
        if refused and self.listener is not None:
            await self.listener.accept()

    def listing(self) -> list[dict[str, Any]]:
        """The active faults, each with its number of hits."""
        return [{**msgspec.to_builtins(active.fault), "hits": active.hits} for active in self._set]

    def _refuse(self, fault: RefuseConnections, can_be_cleared: bool) -> None:
        if fault.duration is None and not can_be_cleared:
            raise InvalidRequest("'refuse' needs a 'duration', or an engine started with --control-port to clear it")
        if self.listener is not None:
            self.listener.refuse()
        self._stop_timer()
        if fault.duration is not None:
            self._reopening = asyncio.create_task(self._clear_after(parse_duration(fault.duration)))

    def _stop_timer(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    async def _clear_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._set = [active for active in self._set if not isinstance(active.fault, RefuseConnections)]
        if self.listener is not None:
            await self.listener.accept()
