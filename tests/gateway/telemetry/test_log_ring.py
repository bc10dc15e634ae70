from __future__ import annotations

import asyncio
from collections.abc import Iterable

from enginehouse.telemetry.log_ring import LogLine, LogRing


def texts(lines: Iterable[LogLine]) -> list[str]:
    return [line.text for line in lines]


def test_lines_may_come_in_pieces_of_any_size() -> None:
    ring = LogRing()
    for piece in (b"fir", b"st\nsec", b"ond\r", b"\nthird\n"):
        ring.write(piece)
    assert ring.tail(10) == ["first", "second", "third"]


def test_the_number_of_lines_is_bounded() -> None:
    ring = LogRing(max_lines=3)
    ring.write(b"".join(b"%d\n" % n for n in range(1000)))
    assert ring.tail(10) == ["997", "998", "999"]
    assert ring.written == 1000


def test_the_number_of_bytes_is_bounded() -> None:
    ring = LogRing(max_bytes=10)
    for line in (b"aaaa\n", b"bbbb\n", b"cccc\n"):
        ring.write(line)
    assert ring.tail(10) == ["bbbb", "cccc"]


def test_output_without_an_end_of_line_is_bounded_too() -> None:
    ring = LogRing(max_lines=4)
    for _ in range(100):
        ring.write(b"x" * 50_000)
    ring.finish()
    assert sum(map(len, ring.tail(10))) <= 4 * 8192


def test_each_step_of_a_progress_bar_is_a_line() -> None:
    ring = LogRing()
    ring.write(b"loading 10%\rloading 50%\rloading 100%\n")
    assert ring.tail(10) == ["loading 10%", "loading 50%", "loading 100%"]


def test_what_is_unfinished_at_the_end_is_a_line() -> None:
    ring = LogRing()
    ring.write(b"Segmentation fault")
    assert ring.tail(1) == []
    ring.finish()
    assert ring.tail(1) == ["Segmentation fault"]


def test_bytes_that_are_no_text_are_shown_all_the_same() -> None:
    ring = LogRing()
    ring.write(b"a\xff\n")
    assert ring.tail(1) == ["a\ufffd"]


def test_the_tail_can_leave_out_what_an_earlier_engine_printed() -> None:
    ring = LogRing()
    ring.write(b"old\n")
    begin = ring.written
    assert ring.tail(10, since=begin) == []
    ring.write(b"new\n")
    assert ring.tail(10, since=begin) == ["new"]


def test_a_reader_goes_on_where_it_was() -> None:
    ring = LogRing()
    ring.write(b"one\ntwo\n")
    assert texts(ring.read(1)) == ["two"]
    place = ring.written
    assert texts(ring.read(place)) == []
    ring.write(b"three\n")
    assert texts(ring.read(place)) == ["three"]


def test_a_slow_reader_loses_the_oldest_lines_and_is_told() -> None:
    ring = LogRing(max_lines=2)
    ring.write(b"0\n1\n2\n3\n4\n")
    assert texts(ring.read(1)) == ["[... 2 lines lost: read too slowly ...]", "3", "4"]
    assert texts(ring.read(3)) == ["3", "4"]


def test_arrivals_order_the_lines_of_several_rings() -> None:
    first, second = LogRing(), LogRing()
    first.write(b"a\n")
    second.write(b"b\n")
    first.write(b"c\n")
    (a, c), (b,) = first.read(0), second.read(0)
    assert a.arrival < b.arrival < c.arrival


async def test_whoever_attends_hears_of_new_lines() -> None:
    ring, more = LogRing(), asyncio.Event()
    assert not ring.followed
    ring.follow(more)
    assert ring.followed
    ring.write(b"no end yet")
    assert not more.is_set()
    ring.finish()
    assert more.is_set()
    more.clear()
    ring.unfollow(more)
    ring.write(b"one\n")
    assert (more.is_set(), ring.followed) == (False, False)
