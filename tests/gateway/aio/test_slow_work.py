from __future__ import annotations

import asyncio
import threading

import pytest

from enginehouse.aio.slow_work import run_slowly
from tests.support.waiting import within


async def test_slow_work_delays_neither_other_slow_work_nor_quick_work() -> None:
    go_on = threading.Event()
    waiting = [asyncio.ensure_future(run_slowly(go_on.wait, 60)) for _ in range(100)]
    assert await within(run_slowly(str, 1)) == "1"
    assert await within(asyncio.to_thread(str, 2)) == "2"
    go_on.set()
    assert await within(asyncio.gather(*waiting)) == [True] * 100


async def test_its_errors_are_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await within(run_slowly(int, "x"))


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
async def test_work_that_ends_its_thread_does_not_end_the_event_loop(end: type[BaseException]) -> None:
    def work() -> None:
        raise end

    with pytest.raises(RuntimeError, match=f"it ended with {end.__name__}"):
        await within(run_slowly(work))
