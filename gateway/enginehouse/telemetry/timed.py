"""Waiting for an event for some time."""

from __future__ import annotations

import asyncio


async def set_or_late(event: asyncio.Event, seconds: float) -> None:
    """Wait until ``event`` is set, but no longer than ``seconds``; then it is set all the same.

    ``asyncio.wait_for`` is no help here: before Python 3.12 it loses a cancellation that comes together with the event.
    """
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
