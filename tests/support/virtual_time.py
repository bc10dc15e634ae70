"""An event loop on a clock that jumps."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

Run = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a scenario to its end."""


class _JumpingSelector(selectors.DefaultSelector):
    """Jumps to the time of the next event instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("every task waits, and no event will ever come")
        self.now += timeout
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


@pytest.fixture
def in_virtual_time() -> Iterator[Run]:
    """Runs a scenario on a clock that jumps: hours pass at once, in the right order."""
    loop = _VirtualLoop()
    yield loop.run_until_complete
    for task in asyncio.all_tasks(loop):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()
