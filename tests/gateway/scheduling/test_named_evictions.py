"""What a swap is said to evict."""

from __future__ import annotations

import pytest

from enginehouse import ReplicaState
from enginehouse.scheduling.host_queue import HostQueue
from tests.support.host_queues import QueueStage


@pytest.mark.parametrize(("state", "evicted"), [(ReplicaState.READY, ("a@a",)), (ReplicaState.STOPPING, ())])
async def test_an_engine_that_stops_already_is_not_evicted(state: ReplicaState, evicted: tuple[str, ...]) -> None:
    stage = QueueStage("a", "b")
    queue: HostQueue = stage.queue
    stage.engines.shown["a@a"] = state
    swap = queue.start_swap("b@b", ["a@a"])
    assert stage.swaps.evicted == [evicted]
    queue.cancel_swap(swap)
