"""Scenarios on a clock that jumps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from enginehouse_kit.virtual_loop import VirtualLoop

Run = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a scenario to its end."""


@pytest.fixture
def in_virtual_time() -> Iterator[Run]:
    """Runs a scenario on a clock that jumps: hours pass at once, in the right order."""
    loop = VirtualLoop()
    yield loop.run_until_complete
    for task in asyncio.all_tasks(loop):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()
