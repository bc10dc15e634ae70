"""When a client may try again that was refused because too many requests wait."""

from __future__ import annotations

from enginehouse.scheduling.flow_control import Backlog


def backlog_of(waiting: int) -> Backlog:
    backlog = Backlog()
    for _ in range(waiting):
        backlog.add()
    return backlog


def serve(backlog: Backlog, *times: float) -> None:
    for now in times:
        backlog.take()
        backlog.granted(now)


def test_without_a_grant_nothing_is_known() -> None:
    assert backlog_of(0).retry_after() == 1
    assert backlog_of(100).retry_after() == 1


def test_it_is_the_time_that_the_backlog_needs_at_its_pace() -> None:
    backlog = backlog_of(55)
    serve(backlog, *(2.0 * turn for turn in range(5)))
    assert backlog.retry_after() == 100
    serve(backlog, *(8.0 + 1.0 * turn for turn in range(1, 31)))
    assert 20 < backlog.retry_after() < 30, "the last 32 grants count"


def test_the_time_without_a_backlog_is_no_sign_of_its_pace() -> None:
    backlog = backlog_of(3)
    serve(backlog, 0.0, 1.0, 2.0)
    assert backlog.waiting == 0
    serve_later = 1000.0
    for _ in range(12):
        backlog.add()
    serve(backlog, serve_later, serve_later + 1.0)
    assert backlog.retry_after() == 10


def test_it_is_bounded() -> None:
    backlog = backlog_of(1000)
    serve(backlog, 0.0, 60.0)
    assert backlog.retry_after() == 600
