"""How long a round of rescheduling blocks the event loop: 1000 instances, 5000 live requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter, thread_time
from typing import NamedTuple, cast

from enginehouse import (
    Candidate,
    Health,
    InstanceMetadata,
    InstanceStatus,
    Load,
    Migrated,
    Migration,
    MigrationMeans,
    NotFound,
    ReplicaState,
    Requirements,
    Role,
)
from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.app import build_planner
from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.route import Reason, Route
from enginehouse.domain.ticket import Phase
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.probing.status_puller import InstanceReport, StatusPuller
from enginehouse.fleet.backend_info import BackendStatus
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.relay.relay import Relay
from enginehouse.rescheduling.cluster import Cluster
from enginehouse.rescheduling.dispatcher import MigrationDispatcher
from enginehouse.rescheduling.live_figures import PlacedRequests
from enginehouse.rescheduling.recent_moves import RecentMoves
from enginehouse.rescheduling.rescheduler import Rescheduler
from enginehouse.telemetry.counters import Counters
from enginehouse.testing import create
from enginehouse_rescheduling.migrators.llumlet.migrator import Llumlet
from tests.support.garbage import without_collector

INSTANCES, REQUESTS = 1000, 5000
LIMIT_S = 0.005
NAMES = [f"gpu-{number}" for number in range(INSTANCES)]
SETTINGS = ReschedulingSettings(enabled=True, cool_down=0)


class Nowhere(Llumlet):
    """Looks whether it can migrate, as the bundled one does, and then fails at once."""

    async def migrate(self, migration: Migration) -> Migrated:
        raise NotFound("There is no llumlet")


class _Live(NamedTuple):
    """A live request, as far as rounds look at it."""

    request_id: bytes
    route: Route
    requirements: Requirements
    began: float
    phase: Phase = Phase.SERVING


class _Gateway:
    """Plays all that a rescheduler looks at."""

    def __init__(self) -> None:
        began = perf_counter() - 1
        self.config = Config(rescheduling=SETTINGS)
        self.fleet = self
        self.context = self
        self.clock = SYSTEM_CLOCK
        self.live = [_live(number, began) for number in range(REQUESTS)]
        self.reports = {name: _report(number) for number, name in enumerate(NAMES)}
        self._backends = [_backend(number, name) for number, name in enumerate(NAMES)]

    def backends(self) -> Sequence[BackendStatus]:
        return self._backends

    def start(self, interval: float) -> None: ...
    def stop(self) -> None: ...
    async def pull(self) -> None: ...


def _live(number: int, began: float) -> _Live:
    name = NAMES[number % INSTANCES]
    candidate = Candidate(model="m", backend=name, replica=f"m@{name}", load=Load())
    needs = Requirements(model="m", estimated_tokens=1000)
    return _Live(b"r%d" % number, Route("m", candidate, Reason.MATCH, ("m",)), needs, began + number * 1e-6)


def _report(number: int) -> InstanceReport:
    status = InstanceStatus(
        instance_id=NAMES[number],
        timestamp_ms=10**13,
        num_total_gpu_tokens=100_000,
        num_used_gpu_tokens=(number * 7919) % 200_000,
    )
    return InstanceReport(status, InstanceMetadata(ip="10.0.0.1", llumlet_port=1, kvt_port=2), perf_counter())


def _backend(number: int, name: str) -> BackendStatus:
    return BackendStatus(
        name=name,
        url="",
        driver="sim",
        priority=0,
        role=Role.DECODE,
        host="local",
        state=ReplicaState.READY,
        health=Health.HEALTHY,
        last_error=None,
        last_error_at=None,
        draining=False,
        models=("m",),
        pending=0,
        avg_latency_ms=0.0,
    )


def _rescheduler() -> Rescheduler:
    gateway, registry = _Gateway(), load_plugins(PluginSettings(enabled=[])).registry
    live = PlacedRequests(cast(Relay, gateway))
    strategy, migrator = create("strategy", "llumnix_load"), Nowhere()
    migrator.prepare(cast(MigrationMeans, gateway))
    return Rescheduler(
        SETTINGS,
        puller=cast(StatusPuller, gateway),
        cluster=Cluster(lambda: cast(HostContext, gateway), live, gateway.reports),
        planner=build_planner(gateway.config, registry),
        dispatcher=MigrationDispatcher(
            [(PluginId("migrator", "llumlet", "", trusted=True), migrator)],
            timeout=5,
            counters=Counters(),
            on_end=lambda migration, migrated: None,
        ),
        recent=RecentMoves(0),
        on_view=strategy.on_view,
    )


async def _longest_turn() -> tuple[float, int]:
    """The longest time that the event loop's thread computes between two turns of another task, in a round."""
    rescheduler, longest = _rescheduler(), 0.0

    async def tick() -> None:
        nonlocal longest
        last = thread_time()
        while True:
            await asyncio.sleep(0)
            now = thread_time()
            longest, last = max(longest, now - last), now

    ticking = asyncio.ensure_future(tick())
    await rescheduler.round()
    ticking.cancel()
    return longest, len(rescheduler.records())


def test_a_round_leaves_the_event_loop_free() -> None:
    with without_collector():  # a collection takes as long as all that other tests have left in memory
        rounds = [asyncio.run(_longest_turn()) for _ in range(5)]

    assert min(migrations for _, migrations in rounds) > 100
    assert min(longest for longest, _ in rounds) < LIMIT_S
    print([f"{longest * 1000:.1f} ms, {migrations} migrations" for longest, migrations in rounds])
