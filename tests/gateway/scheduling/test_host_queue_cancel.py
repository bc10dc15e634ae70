"""``HostQueue.cancel_swap``: the scheduler hears of the end, however early the swap was cancelled."""

from __future__ import annotations

import pytest

from enginehouse import LoadFailed
from tests.support.host_queues import FakeHolder, QueueStage


@pytest.mark.parametrize("begun", [False, True])
async def test_a_cancelled_load_can_be_requested_again(begun: bool) -> None:
    stage = QueueStage("a")
    ticket = stage.ticket("a")
    stage.queue.submit(ticket, FakeHolder())
    if begun:
        await stage.engines.starting.wait()
    stage.queue.cancel(ticket)
    done = await stage.listener.ends.get()
    assert "cancelled" in str(done.error)

    stage.engines.may_start.set()
    await stage.request("a").answer
    assert (await stage.listener.ends.get()).error is None


@pytest.mark.parametrize(
    ("problem", "shown"),
    [(LoadFailed("no memory"), "^no memory$"), (ValueError("secret"), "^'a' could not be loaded: ValueError; see")],
)
async def test_any_error_of_a_load_becomes_load_failed(problem: Exception, shown: str) -> None:
    stage = QueueStage("a")
    stage.engines.problem = problem
    stage.engines.may_start.set()

    with pytest.raises(LoadFailed, match=shown):
        await stage.request("a").answer
