"""The places of requests at the engines that read their prompts."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse.domain.errors import LoadFailed
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.relay.jobs.pairs import PrefillSlot
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import MODEL, OpenGateway
from tests.support.waiting import within


@pytest.mark.usefixtures("every_failure")
@pytest.mark.parametrize("answer", ["granted", "refused"])
async def test_a_request_that_has_just_been_cancelled_holds_up_no_other_one(
    answer: str, house: OpenGateway, engine: StartEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task gives the slot back in the next step of the event loop: until then the queue may still answer."""
    gateway = await house(await engine())
    gateway.gateway.engines.remote.report("a", 1)
    context = gateway.relay.context
    [candidate] = context.fleet.snapshot.candidates(MODEL)
    first, left, other = slots = [PrefillSlot(InferenceJob(context, "/", [], b"r"), candidate) for _ in range(3)]
    of_first, of_left, of_other = (asyncio.create_task(each.take()) for each in slots)
    await asyncio.sleep(0)
    assert [each.done() for each in (of_first, of_left, of_other)] == [True, False, False]
    of_left.cancel()
    if answer == "refused":
        queue = gateway.gateway.engines.remote.queues["a"]
        line, _ = queue.place(candidate.replica)
        queue.reject([line], lambda _: LoadFailed("unloaded"))
        with pytest.raises(LoadFailed):
            await of_other
    first.release()
    left.release()
    if answer == "granted":
        await within(of_other)
    other.release()
    assert candidate.load.pending == 0
    assert not caplog.records, caplog.text
