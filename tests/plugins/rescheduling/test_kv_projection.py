"""Caches of 10 blocks of 10 tokens each."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse import ConfigError, Role
from enginehouse.rescheduling import RequestView
from enginehouse_kit.rescheduling import InstanceView, Plan
from enginehouse_kit.testing import create
from tests.support.cluster_views import instance, pairs, policy, view


def request(name: str, tokens: int, left: int | None = 20, **fields: Any) -> RequestView:
    most = None if left is None else 1 + left
    return RequestView(id=name, prompt_tokens=tokens - 1, output_tokens=1, max_tokens=most, **fields)


def engine(name: str, used: int, *requests: RequestView, **fields: Any) -> InstanceView:
    figures = {"num_total_gpu_tokens": 100, "num_used_gpu_tokens": used, "block_size": 10}
    return instance(name, requests=requests, **{**figures, **fields})


def plan(*instances: InstanceView) -> Plan:
    return policy("kv_projection").plan(view(*instances))


def test_a_request_leaves_before_blocks_run_out() -> None:
    full = engine("full", 90, request("short", 30), request("long", 60))
    planned = plan(full, engine("idle", 0))

    assert pairs(planned) == [("full", "idle")]
    [migration] = planned.migrations
    assert (migration.policy, migration.requests, migration.rule, migration.value) == (
        "kv_projection",
        ("short",),
        "NUM_REQ",
        1,
    )


def test_what_ends_before_the_cache_is_full_stays() -> None:
    assert plan(engine("full", 90, request("a", 30, left=1), request("b", 60, left=1)), engine("idle", 0)) == Plan()


def test_below_the_ratio_nothing_is_projected() -> None:
    assert plan(engine("a", 79, request("a", 79, left=1000)), engine("idle", 0)) == Plan()


@pytest.mark.parametrize(("used", "reads"), [(79, False), (80, True)])
def test_streams_are_read_from_the_ratio_on(used: int, reads: bool) -> None:
    assert policy("kv_projection").reads_streams(engine("a", used)) is reads
    assert not policy("neutral_load").reads_streams(engine("a", used))


def test_blocks_of_other_requests_count() -> None:
    """Nine blocks are in use; the gateway knows of three of them."""
    full = engine("full", 90, request("a", 30))

    assert [each.requests for each in plan(full, engine("idle", 0)).migrations] == [("a",)]


def test_a_request_without_a_limit_runs_as_far_as_the_lookahead() -> None:
    full = engine("full", 90, request("endless", 50, left=None), request("b", 40, left=1))

    assert [each.requests for each in plan(full, engine("idle", 0)).migrations] == [("endless",)]


def test_a_request_that_cannot_move_stays() -> None:
    full = engine("full", 90, request("short", 30, stays="it wants log probabilities"), request("long", 60))

    assert [each.requests for each in plan(full, engine("idle", 0)).migrations] == [("long",)]


def test_requests_go_where_most_room_is() -> None:
    full = engine("full", 90, request("short", 30), request("long", 60))
    others = [engine("a", 40), engine("b", 20), engine("c", 20)]

    assert pairs(plan(full, *others)) == [("full", "b")]


@pytest.mark.parametrize(
    "other",
    [
        {"models": ("other",)},
        {"zone": "eu"},
        {"role": Role.DECODE},
        {"schedulable": False},
        {"block_size": 0},
    ],
)
def test_an_instance_that_cannot_take_it_is_no_destination(other: dict[str, Any]) -> None:
    full = engine("full", 90, request("short", 30), request("long", 60), models=("m",))

    assert plan(full, engine("other", 0, **other)) == Plan()


def test_without_room_the_pair_is_dropped() -> None:
    planned = plan(engine("full", 90, request("short", 30), request("long", 60)), engine("busy", 70))

    assert pairs(planned) == []
    [dropped] = planned.dropped
    assert dropped.why == "full runs out of blocks, and busy has no room for any of its requests"


def test_two_sources_share_the_room_of_one_destination() -> None:
    sources = [engine(name, 90, request(f"{name}-s", 30), request(f"{name}-l", 60)) for name in "ab"]
    planned = plan(*sources, engine("idle", 30))

    assert pairs(planned) == [("a", "idle")]
    assert [(each.source, each.destination) for each in planned.dropped] == [("b", "idle")]


@pytest.mark.parametrize("values", [{"lookahead": 0}, {"ratio": 1.5}, {"ratio": -0.1}])
def test_values_that_project_nothing_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"parameter '{next(iter(values))}'"):
        create("rescheduling_policy", "kv_projection", values)
