from __future__ import annotations

import asyncio
import math

import pytest

from enginehouse_kit.virtual_loop import VirtualLoop


class Ticking:
    """Something happens every second, ``times`` times. ``on_event`` is called then."""

    def __init__(self, loop: VirtualLoop, times: int) -> None:
        self.loop = loop
        self.seen: list[float] = []
        self._left = times

    def next_at(self) -> float:
        return len(self.seen) + 1.0 if self._left else math.inf

    def advance(self) -> None:
        self._left -= 1
        self.seen.append(self.loop.time())
        self.loop.call_later(0.25, self.seen.append, -self.loop.time())

    def wait(self, until: float) -> None: ...


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop()


def test_timers_and_the_world_take_turns_on_one_clock(loop: VirtualLoop) -> None:
    world = Ticking(loop, 2)
    loop.world = world
    loop.run_until_complete(asyncio.sleep(10))
    assert loop.time() == 10
    assert world.seen == [1.0, -1.0, 3.0, -3.0]
    loop.close()


def test_hours_pass_at_once(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(1e6))
    assert loop.time() == pytest.approx(1e6)
    loop.close()


def test_a_loop_that_waits_for_ever_says_so(loop: VirtualLoop) -> None:
    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        loop.run_until_complete(loop.create_future())
    loop.close()
