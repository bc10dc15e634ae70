from __future__ import annotations

import asyncio

import pytest

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.server.faults import ActiveFaults, RefuseConnections, Slow
from enginehouse_sim.simulator.server.http import Call
from tests.support.fake_clock import FakeClock
from tests.support.virtual_time import Run as InVirtualTime
from tests.support.virtual_time import in_virtual_time as in_virtual_time


class FakeListener:
    def __init__(self) -> None:
        self.open = True

    def refuse(self) -> None:
        self.open = False

    async def accept(self) -> None:
        self.open = True


@pytest.fixture
def listener() -> FakeListener:
    return FakeListener()


@pytest.fixture
def faults(clock: FakeClock, listener: FakeListener) -> ActiveFaults:
    faults = ActiveFaults(clock)
    faults.listener = listener
    return faults


async def test_refuse_lasts_as_long_as_it_says(faults: ActiveFaults, clock: FakeClock, listener: FakeListener) -> None:
    faults.add(RefuseConnections(duration="5s"), can_be_cleared=False)
    await clock.advance(4.9)
    assert not listener.open
    await clock.advance(0.1)
    assert listener.open
    assert faults.listing() == []


async def test_clearing_ends_refuse_and_its_timer(
    faults: ActiveFaults, clock: FakeClock, listener: FakeListener
) -> None:
    faults.add(RefuseConnections(duration="5s"), can_be_cleared=True)
    await faults.clear()
    assert listener.open
    faults.add(RefuseConnections(), can_be_cleared=True)
    await clock.advance(10)
    assert not listener.open


async def test_a_later_refuse_replaces_the_timer_of_an_earlier_one(
    faults: ActiveFaults, clock: FakeClock, listener: FakeListener
) -> None:
    faults.add(RefuseConnections(duration="1s"), can_be_cleared=True)
    faults.add(RefuseConnections(duration="5s"), can_be_cleared=True)
    await clock.advance(4)
    assert not listener.open
    await clock.advance(1)
    assert listener.open


async def test_a_refusal_that_could_never_end_is_refused(faults: ActiveFaults, listener: FakeListener) -> None:
    with pytest.raises(InvalidRequest, match="--control-port"):
        faults.add(RefuseConnections(), can_be_cleared=False)
    assert listener.open


def test_slow_waits_before_the_first_byte_and_after_each_chunk(in_virtual_time: InVirtualTime) -> None:
    sent: list[float] = []

    class Wire:
        keeps_alive = True

        async def write(self, data: bytes) -> None:
            sent.append(asyncio.get_running_loop().time())

    async def answer() -> None:
        began = asyncio.get_running_loop().time()
        call = Call("POST", "/", [], b"")
        call.connection = Wire()  # type: ignore[assignment]
        call.hooks = Slow(first_byte="1s", per_chunk="500ms")
        await _stream(call)
        assert [at - began for at in sent] == [1.0, 1.0, 1.5, 2.0]

    in_virtual_time(answer())


async def _stream(call: Call) -> None:
    await call.open_stream()
    await call.event({})
    await call.event({})
    await call.close_stream()
