from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from enginehouse import Health, ReplicaState
from enginehouse.domain.replica import Reason, Route
from enginehouse.errors import LoadFailed
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.tickets import Phase, SwapDone, SwapId
from enginehouse_kit.checks import observers as observer_check
from enginehouse_kit.testing import candidate, request_record, requirements
from enginehouse_operations.pages.event_stream import EventStream
from tests.support.page_facts import page_facts
from tests.support.waiting import within

Event = tuple[str, dict[str, Any]]
Pieces = AsyncGenerator[bytes, None]
EVENTS = {name for name, _ in observer_check.events()} - {"serving"}
"""Who watches sees by the answer itself that the gateway serves; ``serving`` is for its service manager."""

DOWN = [{"backend": "a", "health": "unhealthy", "error": "refused", "draining": False}]


class Stage:
    """An event stream, and ``happens`` for what the rest of the gateway does."""

    def __init__(self, **settings: Any) -> None:
        self.observers = Observers()
        self.replicas = ["a@a"]
        self.phases: dict[str, tuple[Phase, int | None]] = {}
        facts = page_facts(observe=self.observers.add, ignore=self.observers.remove, epoch=lambda: 7.0)
        self.stream = EventStream(facts, self, **{"pace": 0.0, **settings})
        self.watchers: list[Pieces] = []

    def snapshot(self) -> dict[str, Any]:
        return {"replicas": self.replicas, "requests": sorted(self.phases), "backends": DOWN}

    def last_error(self, backend: str) -> str | None:
        return "refused"

    def waiting_for(self, replica: str) -> int:
        return 0

    def progress(self) -> dict[str, tuple[Phase, int | None]]:
        return dict(self.phases)

    def happens(self, event: str, *facts: object) -> None:
        notify(self.observers.callbacks(event), *facts)

    def route(self, request_id: str) -> None:
        chosen = candidate("a", model="m")
        self.happens("routed", request_id, requirements("x"), Route("x", chosen, Reason.ALIAS, ("x", "m")))

    def watch(self) -> Pieces:
        self.watchers.append(self.stream.watch())
        return self.watchers[-1]

    async def watched(self) -> Pieces:
        """A watcher that has read its first snapshot."""
        watcher = self.watch()
        assert (await events(watcher))[0][0] == "snapshot"
        return watcher


MakeStage = Callable[..., Stage]


@pytest.fixture
async def stage() -> AsyncIterator[MakeStage]:
    made: list[Stage] = []

    def make(**settings: Any) -> Stage:
        made.append(Stage(**settings))
        return made[-1]

    yield make
    for each in made:
        for watcher in each.watchers:
            await watcher.aclose()


def read(piece: bytes) -> list[Event]:
    *told, rest = piece.decode().split("\n\n")
    assert rest == ""
    pairs = [event.split("\n") for event in told]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


async def events(watcher: Pieces) -> list[Event]:
    """The next events, of which there is at least one."""
    return read(await within(anext(watcher)))


async def looks(watcher: Pieces) -> list[Event]:
    """The events until the next look at the queues, which tells of something."""
    found: list[Event] = []
    while "request_phases" not in [name for name, _ in found]:
        found += await events(watcher)
    return found


async def test_a_watcher_is_shown_everything_first(stage: MakeStage) -> None:
    house = stage()
    house.phases["r1"] = (Phase.SERVING, None)
    assert await events(house.watch()) == [
        (
            "snapshot",
            {"time": 7.0, "why": "connected", "missed": 0, "replicas": ["a@a"], "requests": ["r1"], "backends": DOWN},
        )
    ]


async def test_nothing_is_listened_to_unless_somebody_watches(stage: MakeStage) -> None:
    house = stage()
    lists = {event: house.observers.callbacks(event) for event in EVENTS}
    assert not any(lists.values())
    first, second = await house.watched(), await house.watched()
    assert {event for event, listeners in lists.items() if listeners} == EVENTS
    await first.aclose()
    assert lists["routed"]
    await second.aclose()
    assert not any(lists.values())


async def test_what_happens_is_told_as_it_happens(stage: MakeStage) -> None:
    house = stage()
    watcher = await house.watched()
    house.happens("replica_state", "a@a", ReplicaState.STARTING)
    house.happens("swap_started", "a@a", ("b@b",))
    house.happens("swap_done", SwapDone(swap=SwapId(1), target="a@a"))
    house.happens("swap_done", SwapDone(swap=SwapId(2), target="a@a", error=LoadFailed("it ended")))
    house.happens("backend_health", "a", Health.UNHEALTHY)
    house.route("r1")
    house.happens("finished", request_record("m", "a", id="r1", arrived=5.0, ended=5.012345))
    house.happens("finished", request_record(None, id="r2", arrived=5.0, ended=5.00004))
    told = await events(watcher)
    assert all(facts.pop("time") == 7.0 for _, facts in told)
    assert told == [
        ("replica_state", {"replica": "a@a", "state": "starting"}),
        ("swap_started", {"target": "a@a", "evict": ["b@b"]}),
        ("swap_done", {"target": "a@a", "error": None}),
        ("swap_done", {"target": "a@a", "error": "it ended"}),
        ("backend_health", {"backend": "a", "health": "unhealthy", "error": "refused"}),
        (
            "request_routed",
            {
                "id": "r1", "path": "/v1/chat/completions", "model": "x", "resolved": "m", "reason": "alias",
                "replica": "m@a",
            },
        ),
        ("request_finished", {"id": "r1", "replica": "m@a", "status": 200, "duration_ms": 12.3}),
        ("request_finished", {"id": "r2", "replica": None, "status": 404, "duration_ms": 0.0}),
    ]  # fmt: skip


async def test_only_phases_and_positions_that_changed_are_told(stage: MakeStage) -> None:
    house = stage()
    house.phases = {"old": (Phase.SERVING, None), "first": (Phase.LOADING, 0), "second": (Phase.QUEUED, 1)}
    watcher = await house.watched()
    house.phases = {"old": (Phase.SERVING, None), "first": (Phase.SERVING, None), "second": (Phase.QUEUED, 0)}
    house.happens("queue_changed")
    house.happens("queue_changed")
    [(_, facts)] = await looks(watcher)
    assert facts["requests"] == [
        {"id": "first", "phase": "serving", "position": None},
        {"id": "second", "phase": "queued", "position": 0},
    ]
    house.happens("queue_changed")
    house.phases["third"] = (Phase.QUEUED, 1)
    house.happens("queue_changed")
    [(_, facts)] = await looks(watcher)
    assert [each["id"] for each in facts["requests"]] == ["third"]


async def test_a_request_is_followed_although_another_had_its_id(stage: MakeStage) -> None:
    house = stage()
    watcher = await house.watched()
    for _ in range(2):
        house.phases = {"same": (Phase.SERVING, None)}
        house.route("same")
        names = [name for name, _ in await looks(watcher)]
        assert names == ["request_routed", "request_phases"]
        house.phases = {}
        house.happens("finished", request_record(id="same"))
        assert (await events(watcher))[0][0] == "request_finished"


async def test_a_change_between_two_looks_is_not_lost_to_who_has_seen_it_in_a_snapshot(
    stage: MakeStage,
) -> None:
    house = stage()
    early = await house.watched()
    house.phases = {"r": (Phase.QUEUED, 1)}
    late = await house.watched()
    house.phases = {}
    house.phases = {"r": (Phase.QUEUED, 0)}
    house.happens("queue_changed")
    assert [each["position"] for _, facts in await looks(early) for each in facts["requests"]] == [1]
    assert [each["position"] for _, facts in await looks(late) for each in facts["requests"]] == [0]


async def test_who_reads_too_slowly_gets_a_new_snapshot_and_is_told_how_much_it_stands_for(
    stage: MakeStage,
) -> None:
    house = stage(most_bytes=1000)
    slow, quick = await house.watched(), await house.watched()
    for number in range(100):
        house.happens("backend_health", f"b{number}", Health.HEALTHY)
        assert [facts["backend"] for _, facts in await events(quick)] == [f"b{number}"]
    house.replicas = ["b@b"]
    assert await events(slow) == [
        (
            "snapshot",
            {"time": 7.0, "why": "overflow", "missed": 100, "replicas": ["b@b"], "requests": [], "backends": DOWN},
        )
    ]
    house.happens("backend_health", "next", Health.HEALTHY)
    assert [facts["backend"] for _, facts in await events(slow)] == ["next"]


async def test_what_waits_for_a_watcher_is_bounded(stage: MakeStage) -> None:
    house = stage(most_bytes=1000)
    watcher = await house.watched()
    for number in range(10):
        house.happens("backend_health", f"b{number}", Health.HEALTHY)
    assert len(await anext(watcher)) <= 1000


async def test_one_event_may_be_larger_than_all_that_may_wait(stage: MakeStage) -> None:
    house = stage(most_bytes=100)
    watcher = await house.watched()
    house.happens("backend_health", "b" * 200, Health.HEALTHY)
    assert [name for name, _ in await events(watcher)] == ["backend_health"]


async def test_events_while_a_snapshot_is_being_sent_follow_it(stage: MakeStage) -> None:
    house = stage()
    watcher = await house.watched()
    house.happens("backend_health", "a", Health.HEALTHY)
    assert [name for name, _ in await events(watcher)] == ["backend_health"]


async def test_everybody_gets_a_snapshot_when_there_are_other_replicas(stage: MakeStage) -> None:
    house = stage()
    watchers = [await house.watched() for _ in range(2)]
    house.replicas = ["a@a", "b@b"]
    house.happens("replicas_changed")
    house.happens("replicas_changed")
    for watcher in watchers:
        [(name, facts)] = await events(watcher)
        assert (name, facts["why"], facts["replicas"]) == ("snapshot", "replicas", ["a@a", "b@b"])


async def test_silence_is_broken_by_a_comment(stage: MakeStage) -> None:
    watcher = await stage(quiet=0.01).watched()
    assert (await within(anext(watcher))).startswith(b":")


async def test_events_are_put_together_once_for_all_watchers(stage: MakeStage) -> None:
    """However many events there are, each watcher gets few pieces, and all of them the same."""
    house = stage(pace=1.0)  # much longer than the events below take on a busy machine
    watchers = [await house.watched() for _ in range(5)]
    house.happens("backend_health", "first", Health.HEALTHY)
    [first] = {await within(anext(each)) for each in watchers}
    for number in range(200):
        house.happens("backend_health", f"b{number}", Health.HEALTHY)
        await asyncio.sleep(0)
    pieces = [await within(anext(each)) for each in watchers]
    assert [len(read(first)), *map(len, map(read, pieces))] == [1] + [200] * 5
    assert len({id(piece) for piece in pieces}) == 1


async def test_what_waits_to_be_put_together_is_bounded(stage: MakeStage) -> None:
    house = stage(pace=60.0, most_bytes=4000)
    watcher = await house.watched()
    for number in range(100):
        house.happens("backend_health", f"b{number}", Health.HEALTHY)
    assert len(await within(anext(watcher))) <= 4000
