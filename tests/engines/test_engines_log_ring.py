from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from enginehouse.engines.log_ring import LogRing


async def _next(lines: AsyncIterator[str]) -> str:
    return await asyncio.wait_for(anext(lines), 5)


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


async def test_a_follower_sees_history_and_then_each_line_as_it_is_written() -> None:
    ring = LogRing()
    ring.write(b"one\ntwo\nthree\n")
    lines = ring.follow(history=2)
    assert [await _next(lines), await _next(lines)] == ["two", "three"]
    waiting = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    assert not waiting.done()
    ring.write(b"four\n")
    assert await asyncio.wait_for(waiting, 5) == "four"


async def test_a_slow_follower_loses_the_oldest_lines_and_is_told() -> None:
    ring = LogRing(max_lines=2)
    ring.write(b"0\n")
    lines = ring.follow(history=1)
    assert await _next(lines) == "0"
    ring.write(b"1\n2\n3\n4\n")
    seen = [await _next(lines) for _ in range(3)]
    assert seen == ["[... 2 lines lost: read too slowly ...]", "3", "4"]


async def test_every_follower_sees_every_line() -> None:
    ring = LogRing()
    followers = [ring.follow() for _ in range(3)]
    waiting = [asyncio.ensure_future(anext(follower)) for follower in followers]
    await asyncio.sleep(0)
    ring.write(b"a\n")
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == ["a", "a", "a"]


async def test_it_is_known_whether_somebody_waits_for_more() -> None:
    ring = LogRing()
    ring.write(b"one\n")
    lines = ring.follow(history=1)
    assert await _next(lines) == "one"
    assert not ring.followed
    waiting = [asyncio.ensure_future(anext(lines)), asyncio.ensure_future(anext(ring.follow()))]
    await asyncio.sleep(0)
    assert ring.followed
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert ring.followed
    ring.write(b"two\n")
    await asyncio.wait_for(waiting[1], 5)
    assert not ring.followed
