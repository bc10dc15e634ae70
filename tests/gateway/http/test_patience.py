"""How much of a request, and of its client's time, the server waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import pytest

from tests.support.fake_client import FakeClient

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
LENGTH = HEAD + b"Content-Length: 3\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
REFUSED = b"HTTP/1.1 400 Bad Request\r\n"
LONGEST = 64 * 1024


class Timer(NamedTuple):
    """A call that is due at a time, unless it is no longer among its clock's."""

    due: float
    call: Callable[[], None]
    clock: Clock

    def cancel(self) -> None:
        self.clock.timers.remove(self)


class Clock:
    """The running loop, but for its time, which only ``pass_time`` moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio.get_running_loop(), name)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[..., None], *arguments: Any) -> Timer:
        timer = Timer(self.now + delay, partial(call, *arguments), self)
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            for timer in [each for each in self.timers if each.due <= self.now]:
                timer.cancel()
                timer.call()


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def slow(clock: Clock) -> FakeClient:
    """A new server connection by that clock, with a connection to it."""
    return FakeClient(cast(asyncio.AbstractEventLoop, clock))


@pytest.mark.parametrize(
    ("begun", "trickle"),
    [
        (b"", b"\r\n"),
        (b"POST /", b"a"),
        (HEAD, b"X"),
        (CHUNKED, b"0"),
        (CHUNKED + b"1;", b"x"),
        (CHUNKED + b"0\r\nX:", b"x"),
    ],
    ids=["empty lines", "a target", "a header", "a chunk size", "a chunk extension", "a trailer"],
)
async def test_what_trickles_in_without_an_end_is_cut_off_after_a_minute(
    slow: FakeClient, clock: Clock, begun: bytes, trickle: bytes
) -> None:
    slow.send(begun)
    for _ in range(59):
        slow.send(trickle)
        clock.pass_time(1)
    assert not slow.transport.closing
    for _ in range(6):
        slow.send(trickle)
        clock.pass_time(1)
    assert slow.transport.closing
    assert slow.engine.requests == []


@pytest.mark.parametrize("begun", [HEAD, LENGTH + b"a", CHUNKED + b"3\r\na"], ids=["head", "body", "chunk"])
async def test_a_request_that_stops_arriving_is_cut_off_after_a_minute(
    slow: FakeClient, clock: Clock, begun: bytes
) -> None:
    slow.send(begun)
    clock.pass_time(59)
    assert not slow.transport.closing
    clock.pass_time(6)
    assert slow.transport.aborted


@pytest.mark.parametrize(("version", "asked"), [(b"1.1", True), (b"1.0", False)])
async def test_only_a_client_of_http_1_1_is_told_to_continue(slow: FakeClient, version: bytes, asked: bool) -> None:
    slow.send(LENGTH.replace(b"1.1", version, 1).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
    assert slow.transport.written.startswith(b"HTTP/1.1 100") is asked


async def test_a_connection_that_cannot_be_checked_spares_the_others(slow: FakeClient, clock: Clock) -> None:
    def fail(now: float) -> None:
        raise RuntimeError("a defect")

    slow._server._checks = {fail: None, **slow._server._checks}
    clock.pass_time(76)
    assert slow.transport.closing


async def test_a_client_that_never_says_anything_is_idle(slow: FakeClient, clock: Clock) -> None:
    clock.pass_time(75)
    assert not slow.transport.closing
    clock.pass_time(1)
    assert slow.transport.closing


async def test_a_slow_body_may_take_its_time(slow: FakeClient, clock: Clock) -> None:
    slow.send(HEAD + b"Content-Length: 20\r\n\r\n")
    for _ in range(20):
        clock.pass_time(50)
        slow.send(b"a")
    await slow.settle()
    assert [request.body for request in slow.engine.requests] == [b"a" * 20]
    assert not slow.transport.closing


async def test_each_request_has_its_own_minute(slow: FakeClient, clock: Clock) -> None:
    for _ in range(5):
        slow.send(HEAD)
        clock.pass_time(50)
        slow.send(LENGTH.removeprefix(HEAD) + b"abc")
        await slow.settle()
    assert len(slow.engine.requests) == 5
    assert not slow.transport.closing


@pytest.mark.parametrize(
    "behind", [b"\r\n", LENGTH + b"a", HEAD], ids=["an empty line", "half a request", "half a head"]
)
async def test_no_answer_is_cut_off_because_of_what_follows_its_request(
    slow: FakeClient, clock: Clock, behind: bytes
) -> None:
    slow.send(LENGTH + b"abc")
    slow.send(behind)
    clock.pass_time(300)
    assert not slow.transport.closing
    await slow.settle()
    assert slow.transport.written.endswith(b"ok")


async def test_a_client_whose_body_nobody_wants_must_still_end_it(slow: FakeClient, clock: Clock) -> None:
    slow.send(b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
    await slow.settle()
    assert slow.transport.written.startswith(b"HTTP/1.1 404")
    slow.send(b"a")
    clock.pass_time(65)
    assert slow.transport.closing


@pytest.mark.parametrize(
    "begun", [HEAD + b"X: ", b"POST /", CHUNKED + b"1\r\na\r\n0\r\nX: "], ids=["header", "target", "trailer"]
)
async def test_nothing_endless_is_kept(slow: FakeClient, begun: bytes) -> None:
    slow.send(begun)
    for _ in range(LONGEST // 1024 - 1):
        slow.send(b"a" * 1024)
    assert not slow.transport.closing
    slow.send(b"a" * 2048)
    assert slow.transport.closing
    assert slow.transport.written.startswith(REFUSED)
    assert slow.engine.requests == []


@pytest.mark.parametrize("path", [b"/v1/completions", b"/elsewhere"])
async def test_a_long_body_is_nothing_endless(slow: FakeClient, path: bytes) -> None:
    slow.send(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path, 4 * LONGEST))
    for _ in range(4 * LONGEST // 1024):
        slow.send(b"a" * 1024)
        while not slow.transport.reads:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
    await slow.settle()
    assert len(slow.engine.requests[0].body) == 4 * LONGEST


async def test_a_request_that_came_behind_another_may_wait_for_its_answer(slow: FakeClient, clock: Clock) -> None:
    slow.send((LENGTH + b"abc") * 2)
    slow.engine.unanswered.pop().say()
    await asyncio.sleep(0)
    assert len(slow.engine.requests) == 2
    for _ in range(200):
        clock.pass_time(1)
    assert not slow.transport.closing
    slow.engine.answer()
    assert slow.transport.written.count(b"HTTP/1.1 200") == 2
