"""The phase of a request whose replica waits for resources of a cluster."""

from __future__ import annotations

from enginehouse import ReplicaState
from enginehouse.tickets import Phase
from tests.support.host_queues import QueueStage


async def test_a_request_for_a_replica_that_waits_for_resources_is_placing() -> None:
    stage = QueueStage("ab")
    first, _ = stage.request("a"), stage.request("b")
    await stage.engines.starting.wait()
    stage.engines.shown["a"] = ReplicaState.STARTING
    assert [each.phase for each in stage.queue.waiting()] == [Phase.LOADING, Phase.QUEUED]
    stage.engines.shown["a"] = ReplicaState.PLACING
    assert [each.phase for each in stage.queue.waiting()] == [Phase.PLACING, Phase.QUEUED]
    stage.engines.may_start.set()
    await first.answer
    assert Phase.PLACING not in [each.phase for each in stage.queue.waiting()]
