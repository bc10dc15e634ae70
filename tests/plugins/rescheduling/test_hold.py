"""How long a round of rescheduling blocks the event loop: 1000 instances, 5000 live requests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from time import perf_counter
from types import FrameType

from enginehouse import Candidate, Role, Route
from enginehouse.backends import BackendStatus
from enginehouse.errors import NotFound
from enginehouse.rescheduling import InstanceMetadata, InstanceReport, InstanceStatus, RequestView, ReschedulingSettings
from enginehouse.routing_facts import Load, Reason
from enginehouse.runtime import PluginId
from enginehouse.services import GatewayRequest
from enginehouse_kit.rescheduling import ClusterView, Migrated, Migration
from enginehouse_kit.testing import FakeGatewayRequest, FakeServiceGateway, create
from enginehouse_rescheduling.dispatcher import GatewayMeans, MigrationDispatcher
from enginehouse_rescheduling.migrators import Llumlet
from enginehouse_rescheduling.placed_requests import PlacedRequests
from enginehouse_rescheduling.service import Rescheduling
from tests.support.backend_status import backend_status

INSTANCES, REQUESTS = 1000, 5000
MOST_CALLS = 20_000
"""In one turn of the event loop: these take a few milliseconds."""
NAMES = [f"gpu-{number}" for number in range(INSTANCES)]
SETTINGS = ReschedulingSettings(enabled=True, cool_down=0)


class Nowhere(Llumlet):
    """Looks whether it can migrate, as the bundled one does, and then fails at once."""

    async def migrate(self, migration: Migration) -> Migrated:
        raise NotFound("There is no llumlet")


def _gateway() -> FakeServiceGateway:
    gateway, began = FakeServiceGateway(), perf_counter() - 1
    gateway.tables["rescheduling"] = SETTINGS
    gateway.live = [_live(number, began) for number in range(REQUESTS)]
    gateway.reports = {name: _report(number) for number, name in enumerate(NAMES)}
    gateway.statuses = [_backend(name) for name in NAMES]
    return gateway


def _live(number: int, began: float) -> FakeGatewayRequest:
    name = NAMES[number % INSTANCES]
    candidate = Candidate(model="m", backend=name, replica=f"m@{name}", load=Load())
    view = RequestView(id=f"r{number}", model="m", prompt_tokens=1000)
    route = Route("m", candidate, Reason.MATCH, ("m",))
    return FakeGatewayRequest(id=view.id, began=began + number * 1e-6, route=route, seen=view)


def _report(number: int) -> InstanceReport:
    status = InstanceStatus(
        instance_id=NAMES[number],
        timestamp_ms=10**13,
        num_total_gpu_tokens=100_000,
        num_used_gpu_tokens=(number * 7919) % 200_000,
    )
    return InstanceReport(status, InstanceMetadata(ip="10.0.0.1", llumlet_port=1, kvt_port=2), perf_counter())


def _backend(name: str) -> BackendStatus:
    return backend_status(name=name, role=Role.DECODE)


class Publishing:
    """The figures of engines, which a strategy reads."""

    def __init__(self, reports: Mapping[str, InstanceReport]) -> None:
        self.reports = reports
        self._strategy = create("strategy", "llumnix_load")

    def publish(self, view: ClusterView) -> None:
        self._strategy.on_view(view, SETTINGS)


def _rescheduler() -> Rescheduling:
    gateway, it, migrator = _gateway(), Rescheduling(), Nowhere()
    gateway.figures = Publishing(gateway.reports)  # type: ignore[assignment]
    it.prepare(gateway)
    migrator.prepare(GatewayMeans(gateway, PlacedRequests(gateway)))
    it._dispatcher = MigrationDispatcher(
        [(PluginId("migrator", "llumlet", "", trusted=True), migrator)],
        timeout=5,
        on_end=lambda migration, migrated: None,
        clock=gateway.clock,
    )
    return it


async def test_a_round_leaves_the_event_loop_free() -> None:
    """Work is counted in calls of functions: the processor's time depends on what else the machine does."""
    rescheduler, turns, calls = _rescheduler(), list[int](), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    async def tick() -> None:
        nonlocal calls
        while True:
            await asyncio.sleep(0)
            turns.append(calls)
            calls = 0

    ticking = asyncio.ensure_future(tick())
    sys.setprofile(count)
    try:
        await rescheduler.round()
    finally:
        sys.setprofile(None)
        ticking.cancel()
    print(f"{max(turns)} of {sum(turns)} calls")
    assert len(rescheduler._dispatcher.records) > 100
    assert max(turns) < MOST_CALLS


async def test_migrations_that_begin_in_one_turn_look_for_requests_once() -> None:
    gateway, looks = _gateway(), 0

    class Counting:
        def __iter__(self) -> Iterator[GatewayRequest]:
            nonlocal looks
            looks += 1
            return iter(gateway.live)

    gateway.requests = Counting()  # type: ignore[assignment]
    placed = PlacedRequests(gateway)
    assert [[each.id for each in placed.at(name)] for name in NAMES[:2]] == [
        [f"r{number + 1000 * round}" for round in range(5)] for number in range(2)
    ]
    assert looks == 1
    await asyncio.sleep(0)
    gateway.live = gateway.live[:1]
    assert [each.id for each in placed.at(NAMES[0])] == ["r0"]
    placed.note_move("r0", NAMES[1])
    assert [each.id for each in placed.at(NAMES[1])] == ["r0"], "also in the same turn"
