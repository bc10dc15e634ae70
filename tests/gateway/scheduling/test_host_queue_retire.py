"""``HostQueue.retire`` and ``reject``: engines are taken away while their host serves."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse import ReplicaState
from enginehouse.errors import LoadFailed
from tests.support.host_queues import FakeHolder, QueueStage, until
from tests.support.virtual_time import Run


@pytest.fixture
async def stage() -> QueueStage:
    stage = QueueStage("ab", ready="a")
    stage.engines.may_start.set()
    return stage


async def test_a_busy_engine_is_stopped_after_its_last_request(stage: QueueStage) -> None:
    first, second = stage.request("a"), stage.request("a")
    retired = stage.retire("a")
    stage.queue.served("a")
    late = stage.request("a")
    await asyncio.sleep(0)
    assert (first.heard, second.heard, late.heard) == (["granted"], ["granted"], [])
    assert stage.engines.stopped == []
    stage.queue.served("a")
    await until(lambda: stage.engines.stopped)
    assert not retired.done()
    assert stage.engines.stopped == [("a", None)], "within the time that its model gives it"
    stage.engines.may_stop.set()
    await retired
    await until(lambda: late.heard)
    assert late.heard == ["granted"], "by the engine started then"


async def test_an_engine_that_stays_busy_is_stopped_after_its_time(stage: QueueStage) -> None:
    stage.request("a")
    stage.engines.may_stop.set()
    await stage.retire("a", within=0.01)
    assert stage.engines.stopped == [("a", None)]


def test_an_engine_that_is_cut_off_its_requests_may_notice_before_it_is_asked_to_stop(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        stage, loop = QueueStage("a", ready="a"), asyncio.get_running_loop()
        cut = stage.engines.cut
        stage.engines.may_stop.set()
        stage.request("a")
        began = loop.time()
        unloaded = asyncio.ensure_future(stage.queue.unload(["a"], 5))
        await until(lambda: cut)
        late = stage.request("a")
        assert (stage.engines.stopped, late.heard) == ([], []), "meanwhile it gets no other request"
        await unloaded
        assert (cut, stage.engines.stopped) == (["a"], [("a", 5.0)])
        assert loop.time() - began == pytest.approx(0.1)

    in_virtual_time(scenario())


async def test_an_idle_engine_is_stopped_at_once(stage: QueueStage) -> None:
    stage.request("a")
    stage.queue.served("a")
    stage.engines.may_stop.set()
    await stage.retire("a")
    assert stage.engines.stopped == [("a", None)]


async def test_an_engine_is_retired_once(stage: QueueStage) -> None:
    stage.request("a")
    assert stage.retire("a") is stage.retire("a")
    stage.engines.may_stop.set()
    stage.queue.served("a")
    await stage.retire("a")
    assert stage.engines.stopped == [("a", None)]


async def test_the_retirement_of_an_engine_that_exited_does_not_stop_the_next_one(stage: QueueStage) -> None:
    stage.request("a")
    retired = stage.retire("a")
    stage.engines.shown["a"] = ReplicaState.FAILED
    stage.queue.exited("a")
    again = stage.request("a")
    await until(lambda: again.heard == ["granted"])
    stage.queue.served("a")
    stage.queue.served("a")
    await retired
    assert stage.engines.stopped == []


async def test_the_retirement_of_an_engine_that_exited_does_not_end_that_of_the_next_one(stage: QueueStage) -> None:
    stage.request("a")
    first = stage.retire("a", within=0.01)
    await asyncio.sleep(0)  # it waits for the request
    stage.engines.shown["a"] = ReplicaState.FAILED
    stage.queue.exited("a")
    again = stage.request("a")
    await until(lambda: again.heard == ["granted"])
    second = stage.retire("a")
    await first
    assert stage.engines.stopped == [], "the next engine has more time"
    stage.engines.may_stop.set()
    stage.queue.served("a")
    stage.queue.served("a")
    await second
    assert stage.engines.stopped == [("a", None)]


async def test_a_grant_that_is_not_wanted_does_not_delay_a_retirement(stage: QueueStage) -> None:
    stage.queue.submit(stage.ticket("a"), FakeHolder(wanted=False))
    stage.engines.may_stop.set()
    await stage.retire("a")
    assert stage.engines.stopped == [("a", None)]


async def test_only_requests_that_wait_for_a_removed_replica_are_rejected(stage: QueueStage) -> None:
    served, first, second = stage.request("a"), stage.request("b"), stage.request("b")
    assert [waiting.ticket.replica for waiting in stage.queue.waiting()] == ["b", "b"]
    stage.queue.reject({"b"}, lambda replica: LoadFailed(f"no {replica}"))
    assert (served.heard, first.heard, second.heard) == (["granted"], ["no b"], ["no b"])
    assert not stage.queue.waiting()


async def test_the_load_for_rejected_requests_is_cancelled(stage: QueueStage) -> None:
    stage.engines.shown["a"] = ReplicaState.STOPPED
    stage.engines.may_start.clear()
    rejected = stage.request("b")
    await stage.engines.starting.wait()
    stage.queue.reject({"b"}, lambda replica: LoadFailed("no"))
    assert rejected.heard == ["no"]
    other = stage.request("a")
    stage.engines.may_start.set()
    await until(lambda: other.heard == ["granted"])


async def test_a_removed_replica_is_forgotten_once_it_serves_nobody() -> None:
    stage = QueueStage("a", ready="a")
    stage.request("a")
    stage.queue.exited("a")
    stage.queue.forget("a")
    assert stage.queue.generation("a") == 1, "its request must learn that the engine has exited"
    del stage.engines.shown["a"]
    stage.queue.served("a")
    assert stage.queue.generation("a") == 0
