"""Deadlines of requests that wait for a load."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse import ReplicaState
from enginehouse.domain.errors import DeadlineMissed
from enginehouse.domain.ticket import SwapDone
from enginehouse.scheduling.host_engines import SwapTasks
from enginehouse_scheduling.fifo import Fifo
from tests.support.host_queues import FakeEngines, FakeHolder, QueueStage
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]


def request(stage: QueueStage, within: float) -> FakeHolder:
    """A request for the replica "a" that must be granted in so many seconds."""
    ticket, holder = stage.ticket("a"), FakeHolder()
    ticket.deadline = stage.queue.now() + within
    stage.queue.submit(ticket, holder)
    return holder


async def load(stage: QueueStage, seconds: float) -> None:
    """Load "a" in so many seconds."""
    holder = stage.request("a")
    await asyncio.sleep(seconds)
    stage.engines.may_start.set()
    await holder.answer
    await stage.swaps.ends.get()


def gone(stage: QueueStage) -> None:
    """The engine of "a" has exited, and its next start takes until the test allows it."""
    stage.engines.may_start.clear()
    stage.engines.shown["a"] = ReplicaState.STOPPED
    stage.queue.exited("a")


def test_a_request_that_no_load_was_ever_fast_enough_for_is_refused_at_once(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        stage = QueueStage("a")
        await load(stage, 5)
        gone(stage)
        with pytest.raises(DeadlineMissed) as refused:
            request(stage, within=4).answer.result()
        assert refused.value.details == {"wait_ms": 5000}
        await asyncio.sleep(3)  # the load goes on, and will soon be over
        patient = request(stage, within=4)
        stage.engines.may_start.set()
        await patient.answer

    in_virtual_time(scenario())


def test_a_request_that_waits_in_vain_is_refused_once_that_is_known(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        stage = QueueStage("a")
        await load(stage, 5)
        stage.engines.shown["b"] = ReplicaState.STOPPED
        gone(stage)
        slow = request(stage, within=6)
        await asyncio.sleep(7)
        with pytest.raises(DeadlineMissed):
            slow.answer.result()

    in_virtual_time(scenario())


@pytest.mark.parametrize("others", [0, 1])
def test_a_deadline_that_passes_during_the_first_load_is_met_to_the_millisecond(
    in_virtual_time: Run, others: int
) -> None:
    async def scenario() -> None:
        stage = QueueStage("a")
        for _ in range(others):
            stage.request("a")  # its timer is not due yet
        hurried, began = request(stage, within=0.13), stage.queue.now()
        with pytest.raises(DeadlineMissed):
            await hurried.answer
        assert stage.queue.now() - began == pytest.approx(0.13, abs=0.002)

    in_virtual_time(scenario())


def test_the_end_of_a_cancelled_load_leaves_the_next_one_of_the_replica(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        engines, ends = FakeEngines({"a": ReplicaState.STOPPED}), asyncio.Queue[SwapDone]()
        swaps = SwapTasks(engines, ends.put_nowait)
        swaps.start("a", [])
        await asyncio.sleep(5)
        engines.may_start.set()
        await ends.get()
        engines.may_start.clear()
        cancelled = swaps.start("a", [])
        await asyncio.sleep(1)
        swaps.cancel(cancelled)
        again = swaps.start("a", [])
        assert (await ends.get()).swap == cancelled
        await asyncio.sleep(2)
        assert swaps.seconds_left("a") == pytest.approx(3)
        swaps.cancel(again)
        await ends.get()

    in_virtual_time(scenario())


def test_while_all_may_wait_nobody_lists_them(in_virtual_time: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[Fifo] = []
    monkeypatch.setattr(Fifo, "waiting", lambda fifo: lists.append(fifo) or ())  # type: ignore[func-returns-value]

    async def scenario() -> None:
        stage = QueueStage("a")
        assert request(stage, within=60).heard == request(stage, within=60).heard == []
        assert lists == []

    in_virtual_time(scenario())
