"""Waits until an engine that starts can take requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from enginehouse.engines.model_driver import ModelDriver
from enginehouse.engines.start_errors import StartErrors
from enginehouse.interfaces.launchers import EngineProcess


class EngineRun(NamedTuple):
    """One run of an engine. ``first_line``: the number of the first line that it printed."""

    process: EngineProcess
    port: int
    first_line: int


async def until_healthy(
    run: EngineRun, driver: ModelDriver, errors: StartErrors, deadline: float, note: Callable[[str], None]
) -> None:
    """Wait until the engine is healthy; ``note`` gets each problem meanwhile. ``deadline`` is on the loop's clock.

    Raises ``LoadFailed`` if the engine exits first, and ``TimeoutError`` at the deadline.
    """
    healthy = asyncio.ensure_future(driver.until_healthy(run.process.address, note))
    exited = asyncio.ensure_future(run.process.exited())
    try:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait({healthy, exited}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if exited.done():
            raise errors.exited_early(exited.result(), run.first_line)
        if not healthy.done():
            raise TimeoutError
        healthy.result()
    finally:
        healthy.cancel()
        exited.cancel()
