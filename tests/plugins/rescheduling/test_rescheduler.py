from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from enginehouse.config.schema import PluginSettings
from enginehouse.rescheduling import RequestView, ReschedulingSettings
from enginehouse_kit.rescheduling import ClusterView, InstanceView, Migration, Plan
from enginehouse_kit.testing import FakeServiceGateway
from enginehouse_rescheduling.cluster import Cluster
from enginehouse_rescheduling.planner import Planner, RecentMoves
from enginehouse_rescheduling.service import Rescheduling
from tests.support.cluster_views import instance, view
from tests.support.waiting import within

VIEW = view(instance("a", requests=(RequestView(id="r"),)), instance("b"), instance("idle"))
PLAN = Plan(migrations=(Migration(policy="p", source="a", destination="b", rule="NUM_REQ", order="SR", value=1),))
IDLE = Migration(policy="p", source="idle", destination="b", rule="NUM_REQ", order="SR", value=-1)


class Recorder:
    """Plays the parts of a rescheduler, and notes what is asked of them."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, Any]] = []
        self.planned_in: threading.Thread | None = None
        self.read: list[str] = []

    async def view(self, reads_streams: Callable[[InstanceView], bool]) -> ClusterView:
        self.read = [each.id for each in VIEW.instances if reads_streams(each)]
        return VIEW

    def reads_streams(self, instance: InstanceView) -> bool:
        return instance.id == "a"

    def plan(self, view: ClusterView, recent: RecentMoves) -> Plan:
        self.planned_in = threading.current_thread()
        self.notes.append(("plan", view))
        return Plan(migrations=(*PLAN.migrations, IDLE))

    async def carry_out(self, plan: Plan, view: ClusterView) -> None:
        self.notes.append(("carry_out", (plan, view)))

    def rescheduling(self, gateway: FakeServiceGateway, **settings: Any) -> Rescheduling:
        gateway.tables["rescheduling"] = ReschedulingSettings(policies=[], migrators=[], **settings)
        it = Rescheduling()
        it.prepare(gateway)
        it._cluster, it._planner = cast(Cluster, self), cast(Planner, self)
        it._dispatcher.carry_out = self.carry_out  # type: ignore[method-assign]
        return it


async def test_a_round_looks_plans_in_a_thread_and_moves_what_is_live() -> None:
    parts, gateway = Recorder(), FakeServiceGateway()
    await parts.rescheduling(gateway, enabled=True).round()

    assert gateway.published == [VIEW]
    assert parts.notes == [("plan", VIEW), ("carry_out", (PLAN, VIEW))]
    assert parts.planned_in is not threading.main_thread()
    assert parts.read == ["a"], "streams of an instance are read if a policy asks for it"


async def test_strategies_get_views_while_requests_move() -> None:
    parts, gateway = Recorder(), FakeServiceGateway()
    it = parts.rescheduling(gateway, enabled=True, interval=0.001)
    seen = asyncio.Event()

    async def carry_out(plan: Plan, view: ClusterView) -> None:
        await seen.wait()

    async def view(reads_streams: Callable[[InstanceView], bool]) -> ClusterView:
        if len(gateway.published) == 3:
            seen.set()
        return VIEW

    it._dispatcher.carry_out, parts.view = carry_out, view  # type: ignore[method-assign]
    await within(it.round())
    assert gateway.published == [VIEW] * 4


async def test_a_round_that_fails_or_is_cancelled_leaves_nothing_that_moves() -> None:
    parts, gateway, ended = Recorder(), FakeServiceGateway(), list[str]()
    it = parts.rescheduling(gateway, enabled=True)
    begun = asyncio.Event()

    async def fail(plan: Plan, view: ClusterView) -> None:
        raise RuntimeError("broken")

    async def wait(plan: Plan, view: ClusterView) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    it._dispatcher.carry_out = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="broken"):
        await it.round()
    it._dispatcher.carry_out = wait  # type: ignore[method-assign]
    round = asyncio.ensure_future(it.round())
    await begun.wait()
    round.cancel()
    await asyncio.wait({round})
    await asyncio.sleep(0)
    assert ended == ["cancelled"]


async def test_engines_are_asked_for_a_view_only_while_nothing_asks_them_anyway() -> None:
    parts, gateway = Recorder(), FakeServiceGateway()
    assert await parts.rescheduling(gateway, enabled=True).view() is VIEW
    assert gateway.asked == 0
    assert await parts.rescheduling(gateway).view() is VIEW
    assert gateway.asked == 1


@pytest.mark.parametrize(
    ("settings", "asked_every", "rounds"),
    [
        ({"enabled": True, "mode": "standalone"}, 0.5, 1),
        ({"mode": "standalone"}, 1.0, 0),
        ({"mode": "colocated"}, 1.0, 0),
        ({"enabled": True}, 0.5, 1),
    ],
)
async def test_engines_are_asked_with_and_without_rounds(
    settings: dict[str, Any], asked_every: float, rounds: int
) -> None:
    gateway = FakeServiceGateway()
    Recorder().rescheduling(gateway, **settings).start(gateway)
    assert (gateway.asked_every, len(gateway.calls)) == (asked_every, rounds)
    gateway.close()


def test_a_reload_takes_other_parameters_of_policies_and_migrators() -> None:
    gateway = FakeServiceGateway()
    gateway.tables["rescheduling"] = ReschedulingSettings(enabled=True)
    it = Rescheduling()
    it.prepare(gateway)
    planner, migrators = it._planner, it._dispatcher.migrators
    it.reconfigure(gateway)
    assert (it._planner, it._dispatcher.migrators) == (planner, migrators), "nothing has changed"
    gateway.tables["plugins"] = PluginSettings(parameters={"replay": {"at_once": 1}})
    it.reconfigure(gateway)
    assert it._planner is not planner
    assert it._dispatcher.migrators is not migrators
    gateway.close()


async def test_strategies_get_views_while_another_process_plans() -> None:
    parts, gateway = Recorder(), FakeServiceGateway()
    parts.rescheduling(gateway, enabled=True, mode="standalone").start(gateway)
    [(_, every)] = gateway.calls
    made = every()
    assert made is not None
    await made
    assert (gateway.published, parts.notes, parts.read) == ([VIEW], [], [])
    gateway.close()
