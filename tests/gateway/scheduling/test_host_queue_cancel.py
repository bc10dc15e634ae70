"""``HostQueue.cancel_swap``: the scheduler hears of the end, however early the swap was cancelled."""

from __future__ import annotations

import pytest

from enginehouse.domain.errors import LoadCancelled
from enginehouse.errors import LoadFailed
from enginehouse.tickets import SchedulingLimits
from tests.support.host_queues import FakeHolder, QueueStage


@pytest.mark.parametrize("begun", [False, True])
async def test_a_cancelled_load_can_be_requested_again(begun: bool) -> None:
    stage = QueueStage("a", limits=SchedulingLimits(cancel_loads="always"))
    ticket = stage.ticket("a")
    stage.queue.submit(ticket, FakeHolder())
    if begun:
        await stage.engines.starting.wait()
    stage.queue.cancel(ticket)
    done = await stage.swaps.ends.get()
    assert isinstance(done.error, LoadCancelled)

    stage.engines.may_start.set()
    await stage.request("a").answer
    assert (await stage.swaps.ends.get()).error is None


async def test_a_client_that_gives_up_early_and_comes_back_gets_the_load_that_it_began() -> None:
    stage = QueueStage("a")
    for _ in range(2):
        ticket = stage.ticket("a")
        stage.queue.submit(ticket, FakeHolder())
        await stage.engines.starting.wait()
        stage.queue.cancel(ticket)
    stage.engines.may_start.set()
    await stage.request("a").answer

    assert (await stage.swaps.ends.get()).error is None
    assert stage.swaps.ends.empty()


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
