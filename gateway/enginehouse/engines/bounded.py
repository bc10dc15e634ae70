"""A time limit that holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def bounded(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of ``work``, or ``TimeoutError`` after ``seconds``.

    Unlike ``asyncio.wait_for`` this does not wait for work that resists its cancellation: it is left behind.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError
    return task.result()


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Take note of the outcome, so that asyncio does not report that of work left behind as lost."""
    if not task.cancelled():
        task.exception()
