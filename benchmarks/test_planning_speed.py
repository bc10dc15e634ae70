"""Measures plans for many instances, from the text of the view to the migrations."""

from __future__ import annotations

import random

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from enginehouse import Role
from enginehouse.config.scheduling import ReschedulingSettings
from enginehouse.rescheduling import InstanceStatus, RequestView
from enginehouse_kit.rescheduling import ClusterView, InstanceView
from enginehouse_kit.testing import FakeServiceGateway
from enginehouse_rescheduling.planner import RecentMoves, build_planner

NOW_MS = 1_700_000_000_000
INSTANCES = 1000
REQUESTS = 20
DEFAULT = ReschedulingSettings().policies
POLICIES = {
    "default": DEFAULT,
    "all": [*DEFAULT, "neutral_load", "binpacking_mitigation", "binpacking_consolidation", "kv_projection"],
}


def cluster() -> ClusterView:
    chance = random.Random(1)
    return ClusterView(now_ms=NOW_MS, instances=tuple(_instance(number, chance) for number in range(INSTANCES)))


def _instance(number: int, chance: random.Random) -> InstanceView:
    running = chance.randrange(REQUESTS * 2)
    status = InstanceStatus(
        instance_id=f"i{number}",
        schedulable=chance.random() > 0.01,
        timestamp_ms=NOW_MS - chance.randrange(1000),
        num_total_gpu_tokens=100_000,
        num_used_gpu_tokens=chance.randrange(130_000),
        scheduler_running_to_decode_requests_num=running,
        scheduler_running_to_decode_tokens_num=running * 2500,
    )
    requests = tuple(
        RequestView(id=f"{number}-{each}", prompt_tokens=2000, output_tokens=500, max_tokens=1000)
        for each in range(running)
    )
    role = chance.choice([Role.DECODE, Role.NEUTRAL])
    return InstanceView(
        id=f"i{number}", node=f"n{number // 8}", role=role, block_size=16, status=status, requests=requests
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_plan_for_a_thousand_instances(benchmark: BenchmarkFixture, name: str) -> None:
    gateway = FakeServiceGateway()
    gateway.tables["rescheduling"] = ReschedulingSettings(policies=POLICIES[name])
    planner = build_planner(gateway)
    view = cluster()
    plan = benchmark(lambda: planner.plan(view, RecentMoves(2)))

    assert len(plan.migrations) > 100


def test_reading_a_view_of_a_thousand_instances(benchmark: BenchmarkFixture) -> None:
    text = msgspec.json.encode(cluster())
    view = benchmark(lambda: msgspec.json.decode(text, type=ClusterView))

    assert len(view.instances) == INSTANCES
