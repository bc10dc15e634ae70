"""Requests that wait in several workers take free slots in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from enginehouse.fleet.workers import LoadBoard
from enginehouse.processes.workers.shared_memory import RoomTurns
from tests.gateway.scheduling.test_waiting_room import Engines, Guest, Hall
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]


class Workers:
    """Two of them, whose rooms share the slots of ``engines``. All slots are taken."""

    def __init__(self, models: Sequence[str] = ("m",)) -> None:
        self.board = LoadBoard(2)
        self.engines = Engines(slots=1, backends=("a", "b"), models=models)
        self.halls = [Hall(self.engines), Hall(self.engines)]
        for number, hall in enumerate(self.halls):
            hall.room.join_others(RoomTurns(self.board, number, hall.room.plan, hall.room.models))
        for load in self.engines.loads.values():
            load.begin()

    def guest(self, worker: int, arrived: float, model: str = "m") -> Guest:
        hall = self.halls[worker]
        hall.time = arrived
        guest = Guest(model, self.engines, ("a", "b"), hall)
        guest.arrive()
        assert guest.is_waiting
        return guest

    def free_slot(self, *hear: int) -> None:
        """A request has ended; these workers hear of it."""
        self.engines.loads["a"].end()
        for worker in hear:
            self.halls[worker].room.queue_changed()


@pytest.fixture
def played(in_virtual_time: Run) -> Callable[[Callable[[], None]], None]:
    """Runs a scenario on an event loop, and lets its timers pass."""

    async def run(scenario: Callable[[], None]) -> None:
        scenario()
        await asyncio.sleep(1)

    return lambda scenario: in_virtual_time(run(scenario))


def test_the_worker_with_the_first_request_takes_the_slot(played: Callable[[Callable[[], None]], None]) -> None:
    workers = Workers()
    found: list[Guest] = []

    def scenario() -> None:
        newer, older = workers.guest(1, 2.0), workers.guest(0, 1.0)
        workers.free_slot(1, 0)
        assert not older.is_waiting
        found.append(newer)

    played(scenario)
    assert found[0].is_waiting, "there was but one slot"


def test_a_slot_that_the_first_request_does_not_take_goes_to_the_next(
    played: Callable[[Callable[[], None]], None],
) -> None:
    workers = Workers()
    found: list[Guest] = []

    def scenario() -> None:
        workers.guest(0, 1.0)
        found.append(workers.guest(1, 2.0))
        workers.free_slot(1)
        assert found[0].is_waiting

    played(scenario)
    assert not found[0].is_waiting


def test_nobody_waits_for_requests_of_another_model_or_of_a_dead_worker(
    played: Callable[[Callable[[], None]], None],
) -> None:
    def scenario() -> None:
        workers = Workers(("m", "n"))
        workers.guest(0, 1.0, "n")
        second = workers.guest(1, 2.0)
        workers.free_slot(1)
        assert not second.is_waiting

        workers = Workers()
        workers.guest(0, 1.0)
        second = workers.guest(1, 2.0)
        workers.board.clear(0)
        workers.free_slot(1)
        assert not second.is_waiting

    played(scenario)


def test_requests_that_wait_in_other_workers_count_in_decisions(played: Callable[[Callable[[], None]], None]) -> None:
    workers = Workers(models=("m", "n"))
    counts = [hall.room.counts for hall in workers.halls]

    def scenario() -> None:
        assert not counts[0]
        assert not counts[1]
        guests = [workers.guest(0, 1.0), workers.guest(0, 2.0), workers.guest(1, 3.0), workers.guest(1, 4.0, "n")]
        assert [each["m"] for each in counts] == [3, 3]
        assert counts[0].get("n") == 1
        assert "o" not in counts[0]
        assert list(counts[0]) == ["m"]
        for each in guests[2:]:
            each.hall.room.leave(each.ticket)
        assert (counts[0]["m"], counts[1]["m"], bool(counts[1])) == (2, 2, True)
        workers.board.clear(0)
        assert not counts[1], "the worker has died"

    played(scenario)
