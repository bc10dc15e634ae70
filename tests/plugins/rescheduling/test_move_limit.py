"""How often rescheduling moves one stream."""

from __future__ import annotations

from enginehouse.domain.instance import RequestView
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
