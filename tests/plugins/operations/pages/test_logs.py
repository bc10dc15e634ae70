from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from enginehouse.pages import LogRing
from enginehouse_operations.pages.logs import follow, history
from tests.support.waiting import within


def rings(**lines: str) -> dict[str, LogRing]:
    made = {name: LogRing() for name in lines}
    for name, text in lines.items():
        made[name].write(text.encode())
    return made


async def coming(pieces: AsyncIterator[Sequence[str]]) -> Sequence[str]:
    return await within(anext(pieces))


async def waiting(pieces: AsyncIterator[Sequence[str]]) -> asyncio.Future[Sequence[str]]:
    """The next piece, for which ``pieces`` waits by now."""
    piece = asyncio.ensure_future(coming(pieces))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not piece.done()
    return piece


def test_logs_are_merged_in_the_order_in_which_their_lines_came() -> None:
    logs = {"": LogRing(), "a": LogRing(), "b": LogRing()}
    logs["a"].write(b"one\n")
    logs[""].write(b"two\n")
    logs["b"].write(b"three\nfour\n")
    logs["a"].write(b"five\n")
    assert history(logs) == ["[a] one", "two", "[b] three", "[b] four", "[a] five"]


def test_the_history_can_be_cut_to_its_last_lines() -> None:
    logs = rings(a="1\n2\n", b="3\n4\n")
    assert history(logs, 3) == ["[a] 2", "[b] 3", "[b] 4"]
    assert history(logs, 0) == []
    assert len(history(logs, 100)) == 4


async def test_a_follower_gets_the_history_and_then_what_is_written() -> None:
    logs = rings(a="1\n2\n", b="3\n")
    pieces = follow(lambda: logs, 2)
    assert await coming(pieces) == ["[a] 2", "[b] 3"]
    piece = await waiting(pieces)
    logs["b"].write(b"4\n")
    logs["a"].write(b"5\n6\n")
    assert await piece == ["[b] 4", "[a] 5", "[a] 6"]
    await pieces.aclose()


async def test_a_follower_can_do_without_the_history() -> None:
    logs = rings(a="1\n")
    pieces = follow(lambda: logs, 0)
    piece = await waiting(pieces)
    logs["a"].write(b"2\n")
    assert await piece == ["[a] 2"]
    await pieces.aclose()


async def test_what_is_written_while_a_follower_is_busy_waits_for_it() -> None:
    logs = rings(a="1\n")
    pieces = follow(lambda: logs)
    await coming(pieces)
    logs["a"].write(b"2\n")
    logs["a"].write(b"3\n")
    assert await coming(pieces) == ["[a] 2", "[a] 3"]
    await pieces.aclose()


async def test_a_slow_follower_is_told_what_it_missed_and_holds_up_nobody() -> None:
    logs = {"a": LogRing(max_lines=2)}
    logs["a"].write(b"0\n")
    pieces = follow(lambda: logs)
    await coming(pieces)
    for number in range(1, 6):
        logs["a"].write(b"%d\n" % number)
    assert await coming(pieces) == ["[a] [... 3 lines lost: read too slowly ...]", "[a] 4", "[a] 5"]
    await pieces.aclose()


async def test_followers_do_not_take_lines_from_each_other() -> None:
    logs = rings(a="")
    followers = [follow(lambda: logs) for _ in range(3)]
    awaited = [await waiting(follower) for follower in followers]
    logs["a"].write(b"1\n")
    assert await asyncio.gather(*awaited) == [["[a] 1"]] * 3
    for follower in followers:
        await follower.aclose()


async def test_a_log_that_is_new_or_was_replaced_is_read_from_its_beginning() -> None:
    logs = rings(a="1\n", b="2\n")
    replaced = logs["a"]
    pieces = follow(lambda: logs, 0)
    piece = await waiting(pieces)
    logs |= rings(a="3\n", c="4\n")
    logs["b"].write(b"5\n")
    assert await piece == ["[a] 3", "[c] 4", "[b] 5"]
    assert not replaced.followed
    await pieces.aclose()


async def test_who_stops_following_is_waited_for_by_nobody() -> None:
    logs = rings(a="", b="")
    pieces = follow(lambda: logs)
    piece = await waiting(pieces)
    assert logs["a"].followed
    piece.cancel()
    await asyncio.wait({piece})
    assert not logs["a"].followed
    assert not logs["b"].followed
