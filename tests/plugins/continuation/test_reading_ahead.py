"""The turns of texts that a backend reads for moves."""

from __future__ import annotations

import pytest

from enginehouse.domain.errors import CannotContinue
from enginehouse_continuation.reading_ahead import ReadingAhead, ReadingTurn


def granted(*turns: ReadingTurn) -> list[bool]:
    return [turn.granted.done() for turn in turns]


async def test_one_text_at_a_time_until_the_speed_of_the_backend_is_known() -> None:
    readings = ReadingAhead("b")
    first, second, third = (ReadingTurn(readings, 100) for _ in range(3))
    assert granted(first, second, third) == [True, False, False]
    first.end()
    assert granted(second, third) == [True, False]


async def test_texts_are_read_together_as_far_as_the_backend_reads_them_in_a_step() -> None:
    readings = ReadingAhead("b")
    readings.note(tokens=10_000, seconds=1.0, gap=0.0)  # 200 tokens in 20 ms
    turns = [ReadingTurn(readings, 90) for _ in range(3)]
    assert granted(*turns) == [True, True, False]
    long = ReadingTurn(readings, 5_000)
    for turn in turns:
        assert not long.granted.done()
        turn.end()
    assert granted(long) == [True], "a longer text is read alone"


async def test_the_steps_of_a_slow_engine_are_not_taken_for_reading() -> None:
    readings = ReadingAhead("b")
    for seconds in (0.4, 0.8, 0.5, 0.7):  # the rest of the step under way, and one more
        readings.note(tokens=100, seconds=seconds, gap=1.2 - seconds)
    assert sum(granted(*(ReadingTurn(readings, 100) for _ in range(10)))) >= 6


async def test_the_texts_of_others_make_a_gap_on_a_slow_engine_half_as_long_again() -> None:
    readings = ReadingAhead("b")
    readings.note(tokens=10_000, seconds=1.4, gap=0.4)  # 2,000 tokens in 0.2 s
    assert granted(*(ReadingTurn(readings, 900) for _ in range(3))) == [True, True, False]


async def test_a_text_that_was_cached_does_not_let_many_others_be_read() -> None:
    readings = ReadingAhead("b")
    readings.note(tokens=1_000, seconds=1.0, gap=0.0)
    readings.note(tokens=1_000, seconds=0.01, gap=0.0)
    assert granted(*(ReadingTurn(readings, 300) for _ in range(2))) == [True, False]


async def test_a_turn_that_is_given_up_holds_nobody_up() -> None:
    readings = ReadingAhead("b")
    first, second, third = (ReadingTurn(readings, 100) for _ in range(3))
    second.end()
    first.end()
    assert granted(third) == [True]


async def test_a_stream_stays_where_it_is_if_its_turn_does_not_come_in_time() -> None:
    readings = ReadingAhead("b")
    ReadingTurn(readings, 100)
    with pytest.raises(CannotContinue, match="Backend 'b' is reading other streams"):
        await ReadingTurn(readings, 100).begin(longest_wait=0.001)
