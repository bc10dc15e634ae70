from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from enginehouse import ClusterView, InstanceView, Migration, Plan, RequestView, ReschedulingSettings, VirtualLoop
from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.engines.probing.status_puller import StatusPuller
from enginehouse.rescheduling.cluster import Cluster
from enginehouse.rescheduling.dispatcher import MigrationDispatcher
from enginehouse.rescheduling.planner import Planner
from enginehouse.rescheduling.recent_moves import RecentMoves
from enginehouse.rescheduling.rescheduler import Rescheduler
from tests.support.cluster_views import instance, view

VIEW = view(instance("a", requests=(RequestView(id="r"),)), instance("b"), instance("idle"))
PLAN = Plan(migrations=(Migration(policy="p", source="a", destination="b", rule="NUM_REQ", order="SR", value=1),))
IDLE = Migration(policy="p", source="idle", destination="b", rule="NUM_REQ", order="SR", value=-1)


class Recorder:
    """Plays every part of a rescheduler, and notes what is asked of it."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, Any]] = []
        self.planned_in: threading.Thread | None = None
        self.pulled = 0
        self.read: list[str] = []

    async def pull(self) -> None:
        self.pulled += 1

    async def view(self, reads_streams: Callable[[InstanceView], bool]) -> ClusterView:
        self.read = [each.id for each in VIEW.instances if reads_streams(each)]
        return VIEW

    def reads_streams(self, instance: InstanceView) -> bool:
        return instance.id == "a"

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        self.notes.append(("view", view))

    def plan(self, view: ClusterView, recent: RecentMoves) -> Plan:
        self.planned_in = threading.current_thread()
        self.notes.append(("plan", view))
        return Plan(migrations=(*PLAN.migrations, IDLE))

    async def carry_out(self, plan: Plan, view: ClusterView) -> None:
        self.notes.append(("carry_out", (plan, view)))

    def start(self, interval: float) -> None:
        self.notes.append(("asked every", interval))

    def stop(self) -> None:
        self.notes.append(("asked no more", None))

    def rescheduler(self, settings: ReschedulingSettings, clock: Clock = SYSTEM_CLOCK) -> Rescheduler:
        return Rescheduler(
            settings,
            clock=clock,
            puller=cast(StatusPuller, self),
            cluster=cast(Cluster, self),
            planner=cast(Planner, self),
            dispatcher=cast(MigrationDispatcher, self),
            recent=RecentMoves(2),
            on_view=self.on_view,
        )


async def test_a_round_looks_plans_in_a_thread_and_moves_what_is_live() -> None:
    parts = Recorder()
    await parts.rescheduler(ReschedulingSettings(enabled=True)).round()

    assert parts.notes == [("view", VIEW), ("plan", VIEW), ("carry_out", (PLAN, VIEW))]
    assert parts.planned_in is not threading.main_thread()
    assert parts.read == ["a"], "streams of an instance are read if a policy asks for it"


async def test_engines_are_asked_for_a_view_only_while_nothing_asks_them_anyway() -> None:
    parts = Recorder()
    assert await parts.rescheduler(ReschedulingSettings(enabled=True)).view() is VIEW
    assert parts.pulled == 0
    assert await parts.rescheduler(ReschedulingSettings()).view() is VIEW
    assert parts.pulled == 1


@pytest.mark.parametrize(
    ("settings", "notes"),
    [
        ({"enabled": True, "mode": "standalone"}, [("asked every", 0.5)]),
        ({"mode": "standalone"}, [("asked every", 1.0)]),
        ({"mode": "colocated"}, [("asked every", 1.0)]),
    ],
)
def test_engines_are_asked_with_and_without_rounds(settings: dict[str, Any], notes: list[Any]) -> None:
    loop, parts = VirtualLoop(), Recorder()

    async def run() -> None:
        parts.rescheduler(ReschedulingSettings(**settings), Clock(loop.time, loop.time)).start()
        await asyncio.sleep(5)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert parts.notes == notes


def test_rounds_begin_after_each_interval_and_never_overlap() -> None:
    loop = VirtualLoop()
    parts, began = Recorder(), list[float]()

    async def carry_out(plan: Plan, view: ClusterView) -> None:
        began.append(loop.time())
        await asyncio.sleep(0.25 if len(began) == 2 else 0)

    parts.carry_out = carry_out  # type: ignore[method-assign]
    rescheduler = parts.rescheduler(ReschedulingSettings(enabled=True, interval=0.1), Clock(loop.time, loop.time))

    async def run() -> None:
        rescheduler.start()
        await asyncio.sleep(0.6)
        rescheduler.stop()
        await asyncio.sleep(0)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert began == pytest.approx([0, 0.1, 0.35, 0.45, 0.55], abs=0.02), "work in threads seems to take 3 ms"
