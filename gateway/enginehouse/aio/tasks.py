"""Background tasks of one owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Starts tasks, holds them while they run, and cancels them together, the oldest first.

    The event loop keeps only weak references to tasks, so one without other references may vanish in mid-run.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background."""
        task = asyncio.create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    def every(self, seconds: float, act: Callable[[], Awaitable[None] | None]) -> None:
        """Call ``act`` again and again, so many seconds after it was done. An exception of it is logged."""
        self.start(_repeat(seconds, act))

    def cancel(self) -> None:
        """Cancel every task that still runs."""
        for task in self._running:
            task.cancel()


async def _repeat(seconds: float, act: Callable[[], Awaitable[None] | None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            done = act()
            if done is not None:
                await done
        except Exception:
            _log.exception("A periodic task has failed, and will run again")


async def wait_for_first(tasks: Collection[asyncio.Future[Any]], stop: asyncio.Future[Any]) -> None:
    """Wait until one of ``tasks`` or ``stop`` is done. Then cancel the tasks and wait until they have ended."""
    try:
        await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
