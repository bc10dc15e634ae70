"""The engines of one host that are being stopped or retired now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from enginehouse.scheduling.collaborators import EngineControl
from enginehouse.scheduling.granted_requests import GrantedRequests

_NOTICES_WITHIN_S: Final = 0.1
"""An engine finds out at its next token that its clients are gone. A llama-server that gets the stop signal while it
computes may wait for a lock that the interrupted thread holds, for ever."""


class EngineStops:
    """Stops engines, and retires them: drains, then stops.

    ``on_busy`` gets a replica that still serves requests, just before it is stopped; ``on_stopped`` gets each one that
    has stopped.
    """

    def __init__(
        self,
        engines: EngineControl,
        granted: GrantedRequests,
        on_busy: Callable[[str], None],
        on_stopped: Callable[[str], None],
    ) -> None:
        self._engines = engines
        self._granted = granted
        self._on_busy = on_busy
        self._on_stopped = on_stopped
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._retirements: dict[str, asyncio.Task[None]] = {}

    def stop(self, replicas: Sequence[str], timeout: float | None) -> None:
        """Begin to stop engines within ``timeout`` seconds, by default their models' limits."""
        for replica in replicas:
            if replica not in self._stops:
                self._stops[replica] = asyncio.ensure_future(self._stop(replica, timeout))

    def retire(self, replica: str, within: float) -> asyncio.Task[None]:
        """Drain an engine for at most ``within`` seconds, then stop it. The task ends when it has stopped."""
        if (task := self._retirements.get(replica)) is None:
            task = self._retirements[replica] = asyncio.ensure_future(self._retire(replica, within))
        return task

    def note_exit(self, replica: str) -> None:
        """Note that an engine exited by itself: its retirement stops no engine that is started later."""
        self._retirements.pop(replica, None)

    async def wait(self, replicas: Collection[str]) -> None:
        """Wait until the engines of ``replicas`` that are being stopped have stopped."""
        await asyncio.gather(*(asyncio.shield(task) for replica, task in self._stops.items() if replica in replicas))

    def cancel(self) -> Sequence[asyncio.Task[None]]:
        """Cancel the retirements. Returns the tasks to wait for: a stop that has begun ends by itself."""
        retirements = [*self._retirements.values()]
        for task in retirements:
            task.cancel()
        return [*retirements, *self._stops.values()]

    async def _stop(self, replica: str, timeout: float | None) -> None:
        if self._granted.of(replica):
            self._on_busy(replica)
            await asyncio.sleep(_NOTICES_WITHIN_S)
        try:
            await self._engines.stop(replica, timeout)
        finally:
            del self._stops[replica]
            self._retirements.pop(replica, None)
            self._on_stopped(replica)

    async def _retire(self, replica: str, within: float) -> None:
        await self._granted.drain(replica, within)
        if replica in self._retirements:  # else it was stopped already, and another engine may run in its place
            self.stop([replica], None)
        if replica in self._stops:
            await asyncio.shield(self._stops[replica])  # no variable: a failure would refer to the task that raised it
