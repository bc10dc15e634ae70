"""Work that is done again and again."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse.aio.tasks import BackgroundTasks
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]


def test_what_is_done_regularly_goes_on_after_a_failure_until_it_is_cancelled(
    in_virtual_time: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        tasks, called = BackgroundTasks(), list[float]()
        now = asyncio.get_running_loop().time
        began = now()

        async def act() -> None:
            called.append(now() - began)
            if len(called) == 1:
                raise ArithmeticError("by zero")

        tasks.every(10, act)
        tasks.every(12, lambda: called.append(0.5))
        await asyncio.sleep(32)
        assert called == [10, 0.5, 20, 0.5, 30]
        tasks.cancel()
        await asyncio.sleep(60)
        assert len(called) == 5

    in_virtual_time(scenario())
    assert caplog.text.count("ArithmeticError: by zero") == 1
