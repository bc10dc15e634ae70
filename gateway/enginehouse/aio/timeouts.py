"""Time limits for work and for events."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` and return its result. Raises ``TimeoutError`` after ``seconds``; never if that is ``None``.

    ``asyncio.wait_for`` waits for work that resists its cancellation; this function does not.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
        raise TimeoutError
    except BaseException:
        leave(task)
        raise
    finally:
        del task  # a failure refers to this frame, and would be kept by its own task until the collector runs


async def run_unless(stop: asyncio.Future[Any], work: Coroutine[Any, Any, T]) -> T | None:
    """Run ``work`` and return its result. Once ``stop`` is done, the work is cancelled and ``None`` returned."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        return None if stop.done() else task.result()
    finally:
        leave(task)
        del task  # as above


async def wait_within(seconds: float, event: asyncio.Event) -> None:
    """Wait until ``event`` is set. After ``seconds`` the event is set by this function.

    Before Python 3.12, ``asyncio.wait_for`` loses a cancellation that comes together with the event.
    """
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


def leave(task: asyncio.Future[Any]) -> None:
    """Cancel work that nobody waits for any more, whatever becomes of it.

    Its outcome is read, else asyncio reports an exception of it as never retrieved.
    """
    if not task.done():
        task.cancel()
        task.add_done_callback(leave)
    elif not task.cancelled():
        task.exception()
