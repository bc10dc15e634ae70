from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enginehouse import InvalidRequest
from enginehouse_sim.server.call import Call
from enginehouse_sim.server.faults.board import FaultBoard
from enginehouse_sim.server.faults.kinds import Refuse, Slow


class Door:
    def __init__(self) -> None:
        self.open = True

    def refuse(self) -> None:
        self.open = False

    async def accept(self) -> None:
        self.open = True


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def board(clock: Any, door: Door) -> FaultBoard:
    board = FaultBoard(clock)
    board.door = door
    return board


async def test_refuse_lasts_as_long_as_it_says(board: FaultBoard, clock: Any, door: Door) -> None:
    board.add(Refuse(duration="5s"), can_be_cleared=False)
    await clock.advance(4.9)
    assert not door.open
    await clock.advance(0.1)
    assert door.open
    assert board.listing() == []


async def test_clearing_ends_refuse_and_its_timer(board: FaultBoard, clock: Any, door: Door) -> None:
    board.add(Refuse(duration="5s"), can_be_cleared=True)
    await board.clear()
    assert door.open
    board.add(Refuse(), can_be_cleared=True)
    await clock.advance(10)
    assert not door.open


async def test_a_later_refuse_replaces_the_timer_of_an_earlier_one(board: FaultBoard, clock: Any, door: Door) -> None:
    board.add(Refuse(duration="1s"), can_be_cleared=True)
    board.add(Refuse(duration="5s"), can_be_cleared=True)
    await clock.advance(4)
    assert not door.open
    await clock.advance(1)
    assert door.open


async def test_a_refusal_that_could_never_end_is_refused(board: FaultBoard, door: Door) -> None:
    with pytest.raises(InvalidRequest, match="--control-port"):
        board.add(Refuse(), can_be_cleared=False)
    assert door.open


async def test_slow_waits_before_the_first_byte_and_after_each_chunk(clock: Any) -> None:
    sent: list[tuple[str, float]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append((event["type"].rpartition(".")[2], clock.now()))

    scope = {"method": "POST", "path": "/", "raw_path": b"/", "query_string": b"", "headers": [], "state": {}}
    scope["state"] = {"connection": None}
    call = Call(scope, _never, send, clock)
    call.fault = Slow(first_byte="1s", per_chunk="500ms")
    answering = asyncio.create_task(_stream(call))
    await clock.advance(10)
    await answering
    assert sent == [("start", 1.0), ("body", 1.0), ("body", 1.5), ("body", 2.0)]


async def _stream(call: Call) -> None:
    await call.open_stream()
    await call.event({})
    await call.event({})
    await call.close_stream()


async def _never() -> dict[str, Any]:
    raise AssertionError
