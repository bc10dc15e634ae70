"""The swaps of one host that are carried out now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from enginehouse.domain.errors import EnginehouseError, LoadCancelled, LoadFailed
from enginehouse.domain.ticket import SwapDone, SwapId
from enginehouse.scheduling.collaborators import EngineControl

_log = logging.getLogger(__name__)


class SwapTasks:
    """Carries out swaps: evicts engines, then starts the target. ``on_done`` gets the end of each.

    ``last``: the swap that was started last, or 0.
    """

    def __init__(self, engines: EngineControl, on_done: Callable[[SwapDone], None]) -> None:
        self._engines = engines
        self._on_done = on_done
        self._tasks: dict[SwapId, asyncio.Task[None]] = {}
        self.last = SwapId(0)
        self._began: dict[str, float] = {}
        self._fastest: dict[str, float] = {}

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(list(self._tasks.values()))

    def start(self, target: str, evict: Sequence[str]) -> SwapId:
        self.last = swap = SwapId(self.last + 1)
        self._began[target] = began = _now()
        self._tasks[swap] = task = asyncio.ensure_future(self._swap(target, evict))
        task.add_done_callback(partial(self._ended, swap, target, began))
        return swap

    def cancel(self, swap: SwapId) -> None:
        """Cancel a swap; ``on_done`` follows with an error."""
        if (task := self._tasks.get(swap)) is not None:
            task.cancel()

    def seconds_left(self, target: str) -> float:
        """The seconds until ``target`` is ready, at the pace of its fastest load so far; 0 if there was none."""
        now = _now()
        return max(0.0, self._began.get(target, now) + self._fastest.get(target, 0.0) - now)

    async def _swap(self, target: str, evict: Sequence[str]) -> None:
        async with self._engines.prepared(target, evict):
            await asyncio.gather(*map(self._engines.evict, evict))
            await self._engines.start(target)

    def _ended(self, swap: SwapId, target: str, began: float, task: asyncio.Task[None]) -> None:
        """Runs also for a swap cancelled before its first step, which no code inside ``_swap`` would see."""
        del self._tasks[swap]
        if self._began.get(target) == began:  # else a later swap has the same target
            del self._began[target]
        error = _why_not(target, task)
        if error is None:
            took = _now() - began
            self._fastest[target] = min(took, self._fastest.get(target, took))
        self._on_done(SwapDone(swap=swap, target=target, error=error))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _why_not(target: str, task: asyncio.Task[None]) -> Exception | None:
    if task.cancelled():
        return LoadCancelled(f"The load of '{target}' was cancelled")
    failure = task.exception()
    if failure is None or isinstance(failure, EnginehouseError):
        return failure
    _log.error("'%s' could not be loaded", target, exc_info=failure)
    return LoadFailed(f"'{target}' could not be loaded: {type(failure).__name__}; see the gateway's log")
