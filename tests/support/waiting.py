"""Waiting for what a test expects, within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

_T = TypeVar("_T")
_LIMIT_S = 60.0
"""Far more than a busy machine needs."""


async def within(awaited: Awaitable[_T]) -> _T:
    """The result of ``awaited``. Raises ``TimeoutError`` if it takes so long that it will never come."""
    return await asyncio.wait_for(awaited, _LIMIT_S)


async def until(holds: Callable[[], object]) -> None:
    """Let the loop run until ``holds()``."""

    async def turn() -> None:
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)

    await within(turn())


async def settled(count: Callable[[], object]) -> None:
    """Let the loop run until ``count()`` has stayed the same for a hundred turns."""
    before, turns = count(), 0

    def stays() -> bool:
        nonlocal before, turns
        before, turns = (before, turns + 1) if (now := count()) == before else (now, 0)
        return turns > 100

    await until(stays)


class Signal(asyncio.Event):
    """An event that fails a test which waits for it in vain."""

    async def wait(self) -> Literal[True]:
        return await within(super().wait())
