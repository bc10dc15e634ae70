"""The load that workers share."""

from __future__ import annotations

from enginehouse.domain.replica import Load
from enginehouse.fleet.workers import BoardColumns, BoardReader, LoadBoard
from tests.support.fake_clock import FakeClock


def shared(board: LoadBoard, worker: int, column: int = 0) -> Load:
    load = Load()
    load.share(board.cells(column), worker)
    return load


def test_every_worker_sees_the_requests_of_all() -> None:
    board = LoadBoard(2)
    one, two = shared(board, 0), shared(board, 1)
    one.begin()
    one.begin()
    two.begin()
    for load in (one, two):
        load.refresh()
        assert load.pending == 3
    one.end()
    two.refresh()
    assert two.pending == 2


def test_requests_in_flight_stay_counted_when_their_load_is_shared() -> None:
    board, load = LoadBoard(2), Load()
    load.begin()
    load.share(board.cells(0), 0)
    assert sum(board.cells(0)) == 1
    load.share(board.cells(1), 0)  # a new configuration may give the backend another column
    assert sum(board.cells(0)) == 0
    load.refresh()
    assert load.pending == 1
    load.end()
    assert sum(board.cells(1)) == 0


def test_a_backend_that_changes_keeps_the_requests_in_flight_in_its_column() -> None:
    board = LoadBoard(2)
    before = shared(board, 0)
    before.begin()
    after = shared(board, 0)  # the changed backend has a load of its own
    after.begin()
    before.end()
    after.refresh()
    assert after.pending == 1


def test_the_requests_of_a_dead_worker_are_forgotten() -> None:
    board = LoadBoard(2)
    one, two = shared(board, 0, 7), shared(board, 1, 7)
    one.begin()
    two.begin()
    board.waiting[0] = 3
    board.clear(0)
    two.refresh()
    assert (two.pending, board.waiting[0]) == (1, 0)


def test_the_view_of_others_is_at_most_a_millisecond_old() -> None:
    board, clock = LoadBoard(2), FakeClock()
    one, two = shared(board, 0), shared(board, 1)
    reader = BoardReader(clock.now)
    reader.watch([one])
    clock.stall(10.0)
    reader.refresh()
    two.begin()
    clock.stall(0.0006)
    reader.refresh()
    assert one.pending == 0
    clock.stall(0.0006)
    reader.refresh()
    assert one.pending == 1


def test_a_column_is_used_again_when_no_request_counts_in_it() -> None:
    board = LoadBoard(1)
    columns = BoardColumns(board)
    first = columns.assign(["a"])["a"]
    load = shared(board, 0, first)
    load.begin()
    assert columns.assign(["b"])["b"] != first
    load.end()
    columns.assign([])
    assert first in columns.assign(["c", "d"]).values()
