"""A request's place at the run loop of a host, with a scheduler that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from enginehouse import (
    Effects,
    EnginehouseError,
    HostFacts,
    LoadFailed,
    QueueFull,
    ReplicaState,
    RequestError,
    Scheduler,
    SchedulingLimits,
    SwapDone,
    Swapper,
    Ticket,
    Waiting,
)
from enginehouse.relay.place import Place
from enginehouse.scheduling.host import Host


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


class Engines:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.state = ReplicaState.STOPPED

    def states(self) -> Mapping[str, ReplicaState]:
        return {"a": self.state}

    def refuse_too_soon(self, replica: str, evict: Sequence[str]) -> None: ...

    async def start(self, replica: str) -> None:
        if self.error is not None:
            raise self.error

    async def stop(self, replica: str, timeout: float | None) -> None: ...


class Nobody:
    def swap_started(self, target: str, evict: tuple[str, ...]) -> None: ...
    def swap_done(self, done: SwapDone) -> None: ...
    def served(self, replica: str) -> None: ...
    def queue_changed(self) -> None: ...


class Traveller:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def depart(self) -> None:
        self.heard.append("departed")

    def turned_away(self, error: RequestError) -> None:
        self.heard.append(error)


@pytest.fixture
def scheduler() -> Obedient:
    return Obedient()


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
async def host(scheduler: Obedient, engines: Engines) -> Host:
    return Host("local", scheduler, engines, Nobody())


@pytest.fixture
def traveller() -> Traveller:
    return Traveller()


@pytest.fixture
async def place(host: Host, traveller: Traveller) -> Place:
    return Place(traveller, host, b"id", "a", priority=3)


async def test_a_granted_place_is_given_back_once(
    place: Place, host: Host, scheduler: Obedient, traveller: Traveller
) -> None:
    place.take()
    assert host.grant(place.ticket)
    assert traveller.heard == ["departed"]
    place.leave()
    place.leave()
    assert scheduler.heard == [place.ticket, "served a"]
    assert (place.ticket.replica, place.ticket.priority) == ("a", 3)


async def test_who_leaves_while_waiting_is_not_granted_a_place(
    place: Place, host: Host, scheduler: Obedient, traveller: Traveller
) -> None:
    place.take()
    place.leave()
    place.leave()
    assert scheduler.heard == [place.ticket, "cancelled"]
    assert not host.grant(place.ticket)
    assert traveller.heard == []


@pytest.mark.parametrize("known", ["later", "before", "never", "stopped"])
async def test_a_place_at_an_engine_that_broke_off_is_given_back_when_it_is_known_why(
    place: Place, host: Host, scheduler: Obedient, engines: Engines, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginehouse.scheduling.host._NEWS_S", 0.01 if known == "never" else 30.0)
    engines.state = ReplicaState.READY
    place.take()
    assert host.grant(place.ticket)
    if known == "before":
        host.went_away("a")
    if known == "stopped":
        engines.state = ReplicaState.STOPPING
    place.in_doubt = True
    place.leave()
    for _ in range(5):
        await asyncio.sleep(0)
    if known in ("later", "never"):
        assert scheduler.heard == [place.ticket], "nobody gets the place meanwhile"
    if known == "later":
        host.went_away("a")
    while scheduler.heard[-1] != "served a":  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
    ended = known in ("later", "before")
    assert scheduler.heard == [place.ticket, *(["stopped a"] if ended else []), "served a"]


async def test_an_engines_end_is_told_to_who_waits_for_news(host: Host, engines: Engines) -> None:
    engines.state = ReplicaState.READY
    life = host.life("a")
    asked = [asyncio.ensure_future(host.ends("a", life)) for _ in range(2)]
    await asyncio.sleep(0)
    host.went_away("a")
    assert [await each for each in asked] == [True, True]
    assert await host.ends("a", life), "also to who asks later, when another runs in its place"
    assert host.life("a") == life + 1


async def test_who_waits_for_news_does_not_keep_a_host_open(host: Host, place: Place, engines: Engines) -> None:
    engines.state = ReplicaState.READY
    place.take()
    assert host.grant(place.ticket)
    place.in_doubt = True
    place.leave()
    await asyncio.wait_for(host.close(QueueFull("bye")), 1)


@pytest.mark.parametrize(
    ("error", "told"), [(QueueFull("full"), QueueFull), (EnginehouseError("no"), LoadFailed), (KeyError(1), LoadFailed)]
)
async def test_who_is_refused_is_told_why(
    place: Place, host: Host, scheduler: Obedient, traveller: Traveller, error: Exception, told: type[RequestError]
) -> None:
    place.take()
    host.refuse(place.ticket, error)
    place.leave()
    assert [type(heard) for heard in traveller.heard] == [told]
    assert scheduler.heard == [place.ticket]


async def test_two_requests_of_one_id_have_two_places(host: Host, traveller: Traveller, scheduler: Obedient) -> None:
    places = [Place(traveller, host, b"id", "a", 0) for _ in range(2)]
    for place in places:
        place.take()
    for place in places:
        assert host.grant(place.ticket)
    assert traveller.heard == ["departed"] * 2


async def test_a_swap_that_is_given_up_before_its_first_step_still_ends(host: Host, scheduler: Obedient) -> None:
    swap = host.start_swap("a", ())
    host.cancel_swap(swap)
    while not scheduler.heard:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
    [done] = scheduler.heard
    assert isinstance(done, SwapDone)
    assert (done.swap, done.target, type(done.error)) == (swap, "a", LoadFailed)


@pytest.mark.parametrize("error", [None, QueueFull("full"), KeyError(1)])
async def test_a_swap_tells_how_it_ended(
    host: Host, scheduler: Obedient, engines: Engines, error: Exception | None
) -> None:
    engines.error = error
    host.start_swap("a", ())
    while not scheduler.heard:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)
    [done] = scheduler.heard
    assert isinstance(done, SwapDone)
    assert done.error is error or (isinstance(done.error, LoadFailed) and "KeyError" in str(done.error))
