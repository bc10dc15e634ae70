"""A request's slot in the queue of a host, whose scheduler decides nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from enginehouse import EnginehouseError, ReplicaState, RequestError, Scheduler, Swapper
from enginehouse.domain.errors import LoadCancelled
from enginehouse.errors import LoadFailed, QueueFull
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.scheduling.host_engines import EngineControl
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.observers import Observers
from enginehouse.tickets import Effects, HostFacts, SchedulingLimits, SwapDone, Ticket, Waiting
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.waiting import within


class Obedient(Scheduler):
    """Remembers what happened; decides nothing by itself."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def prepare(self, effects: Effects, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None: ...
    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None: ...
    def on_tick(self, now: float) -> None: ...
    def on_unload(self, targets: Sequence[str], timeout: float) -> None: ...
    def on_shutdown(self, error: Exception) -> None: ...

    def on_request(self, ticket: Ticket) -> None:
        self.heard.append(ticket)

    def on_swap_done(self, done: SwapDone) -> None:
        self.heard.append(done)

    def on_serve_done(self, replica: str) -> None:
        self.heard.append(f"served {replica}")

    def on_cancel(self, ticket: Ticket) -> None:
        self.heard.append("cancelled")

    def on_stopped(self, replica: str) -> None:
        self.heard.append(f"stopped {replica}")

    def waiting(self) -> Sequence[Waiting]:
        return []


class Engines(EngineControl):
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.state = ReplicaState.STOPPED

    def states(self) -> Mapping[str, ReplicaState]:
        return {"a": self.state}

    async def start(self, replica: str) -> None:
        if self.error is not None:
            raise self.error

    async def stop(self, replica: str, timeout: float | None) -> None: ...


class Holder:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def granted(self) -> None:
        self.heard.append("granted")

    def rejected(self, error: RequestError) -> None:
        self.heard.append(error)


@pytest.fixture
def scheduler() -> Obedient:
    return Obedient()


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
async def host(scheduler: Obedient, engines: Engines) -> HostQueue:
    return HostQueue("local", scheduler, engines, Observers())


@pytest.fixture
def holder() -> Holder:
    return Holder()


@pytest.fixture
async def slot(host: HostQueue, holder: Holder) -> QueueSlot:
    return QueueSlot(holder, host, Ticket(id="id/1", replica="a", priority=3))


async def test_a_granted_place_is_given_back_once(
    slot: QueueSlot, host: HostQueue, scheduler: Obedient, holder: Holder
) -> None:
    slot.take()
    assert host.grant(slot.ticket)
    assert holder.heard == ["granted"]
    slot.release()
    slot.release()
    assert scheduler.heard == [slot.ticket, "served a"]
    assert (slot.ticket.replica, slot.ticket.priority) == ("a", 3)


async def test_a_request_that_leaves_while_waiting_is_not_granted_a_slot(
    slot: QueueSlot, host: HostQueue, scheduler: Obedient, holder: Holder
) -> None:
    slot.take()
    slot.release()
    slot.release()
    assert scheduler.heard == [slot.ticket, "cancelled"]
    assert not host.grant(slot.ticket)
    assert holder.heard == []


@pytest.mark.parametrize("known", ["later", "before", "never", "stopped"])
async def test_a_place_at_an_engine_that_broke_off_is_given_back_when_it_is_known_why(
    slot: QueueSlot,
    host: HostQueue,
    scheduler: Obedient,
    engines: Engines,
    known: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("enginehouse.scheduling.host_queue._NOTICE_S", 0.01 if known == "never" else 30.0)
    engines.state = ReplicaState.READY
    slot.take()
    assert host.grant(slot.ticket)
    if known == "before":
        host.exited("a")
    if known == "stopped":
        engines.state = ReplicaState.STOPPING
    slot.in_doubt = True
    slot.release()
    for _ in range(5):
        await asyncio.sleep(0)
    if known in ("later", "never"):
        assert scheduler.heard == [slot.ticket], "the slot is not given away meanwhile"
    if known == "later":
        host.exited("a")
    while scheduler.heard[-1] != "served a":  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    ended = known in ("later", "before")
    assert scheduler.heard == [slot.ticket, *(["stopped a"] if ended else []), "served a"]


async def test_an_engines_exit_is_news_for_all_that_wait_for_it(host: HostQueue, engines: Engines) -> None:
    engines.state = ReplicaState.READY
    generation = host.generation("a")
    asked = [asyncio.ensure_future(host.has_exited("a", generation)) for _ in range(2)]
    await asyncio.sleep(0)
    host.exited("a")
    assert [await each for each in asked] == [True, True]
    assert await host.has_exited("a", generation), "also later, when another engine runs in its place"
    assert host.generation("a") == generation + 1


async def test_waiting_for_news_does_not_keep_a_host_open(host: HostQueue, slot: QueueSlot, engines: Engines) -> None:
    engines.state = ReplicaState.READY
    slot.take()
    assert host.grant(slot.ticket)
    slot.in_doubt = True
    slot.release()
    await within(host.close(QueueFull("bye")))


@pytest.mark.parametrize(
    ("error", "told"), [(QueueFull("full"), QueueFull), (EnginehouseError("no"), LoadFailed), (KeyError(1), LoadFailed)]
)
async def test_a_rejected_request_gets_the_reason(
    slot: QueueSlot,
    host: HostQueue,
    scheduler: Obedient,
    holder: Holder,
    error: Exception,
    told: type[RequestError],
) -> None:
    slot.take()
    host.refuse(slot.ticket, error)
    slot.release()
    assert [type(heard) for heard in holder.heard] == [told]
    assert scheduler.heard == [slot.ticket]


async def test_two_requests_of_one_id_have_two_places(
    host: HostQueue, holder: Holder, house: OpenGateway, engine: StartEngine
) -> None:
    context = (await house(await engine())).relay.context
    jobs = [InferenceJob(context, "/", [], b"id") for _ in range(2)]
    slots = [QueueSlot(holder, host, job.ticket("a", host.now())) for job in jobs]
    for slot in slots:
        slot.take()
    for slot in slots:
        assert host.grant(slot.ticket)
    assert holder.heard == ["granted"] * 2


async def test_a_swap_that_is_cancelled_before_its_first_step_still_ends(host: HostQueue, scheduler: Obedient) -> None:
    swap = host.start_swap("a", ())
    host.cancel_swap(swap)
    while not scheduler.heard:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    [done] = scheduler.heard
    assert isinstance(done, SwapDone)
    assert (done.swap, done.target, type(done.error)) == (swap, "a", LoadCancelled)


@pytest.mark.parametrize("error", [None, QueueFull("full"), KeyError(1)])
async def test_a_swap_tells_how_it_ended(
    host: HostQueue, scheduler: Obedient, engines: Engines, error: Exception | None
) -> None:
    engines.error = error
    host.start_swap("a", ())
    while not scheduler.heard:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    [done] = scheduler.heard
    assert isinstance(done, SwapDone)
    assert done.error is error or (isinstance(done.error, LoadFailed) and "KeyError" in str(done.error))
