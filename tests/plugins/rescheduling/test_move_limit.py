"""How often rescheduling moves one stream."""

from __future__ import annotations

import pytest

from enginehouse.domain.instance import RequestView
from enginehouse.errors import CannotContinue
from enginehouse_kit.testing import FakeServiceGateway
from enginehouse_rescheduling.dispatcher import GatewayMeans
from enginehouse_rescheduling.placed_requests import PlacedRequests
from enginehouse_rescheduling.planner import MoveLimit


def test_a_stream_stays_after_ten_moves_within_a_minute() -> None:
    now = 0.0
    limit = MoveLimit(lambda: now)
    stream, other = RequestView(id="r"), RequestView(id="s")
    for number in range(10):
        now = number * 5.0
        assert limit.seen(stream).stays is None
        limit.note("r")
    assert limit.seen(stream).stays == "it has moved 10 times within a minute"
    assert limit.seen(other).stays is None
    now = 61.0
    assert limit.seen(stream).stays is None, "the first move is a minute ago"
    limit.note("r")
    assert limit.seen(stream).stays is not None


def test_a_reason_of_the_stream_itself_is_kept() -> None:
    limit = MoveLimit(lambda: 0.0)
    for _ in range(10):
        limit.note("r")
    assert limit.seen(RequestView(id="r", stays="it has ended")).stays == "it has ended"


def test_streams_that_moved_long_ago_are_forgotten() -> None:
    now = 0.0
    limit = MoveLimit(lambda: now)
    for number in range(100):
        limit.note(str(number))
    now = 61.0
    limit.note("r")
    assert list(limit._moves) == ["r"]


async def test_a_stream_that_a_policy_names_does_not_move_more_often() -> None:
    gateway = FakeServiceGateway()
    means = GatewayMeans(gateway, PlacedRequests(gateway))
    for _ in range(10):
        await means.move("r", "b")
    with pytest.raises(CannotContinue, match="it has moved 10 times within a minute"):
        await means.move("r", "b")
    await means.join("r", "b", "of-engines")
    assert len(gateway.moves) == 11, "what engines have moved already is followed"
    gateway.close()
