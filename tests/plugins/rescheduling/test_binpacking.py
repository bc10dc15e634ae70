"""The profile gives half a millisecond per request, and every instance counts one request more than it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginehouse import ConfigError, Role
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.rescheduling import InstanceView, Plan
from enginehouse_kit.testing import create
from tests.support.cluster_views import NOW_MS, half_batch_profile, instance, pairs, policy, view


def at(name: str, tpot_ms: float, **fields: Any) -> InstanceView:
    """An instance with a predicted time per output token."""
    requests = round(2 * tpot_ms) - 1
    return instance(
        name,
        scheduler_running_to_decode_requests_num=requests,
        scheduler_running_to_decode_tokens_num=100 * (requests + 1) if requests > 0 else 0,
        **fields,
    )


@pytest.fixture
def mitigate(tmp_path: Path) -> Any:
    made = policy("binpacking_mitigation", **half_batch_profile(tmp_path))
    return lambda *instances: made.plan(view(*instances))


@pytest.fixture
def consolidate(tmp_path: Path) -> Any:
    made = policy("binpacking_consolidation", **half_batch_profile(tmp_path))
    return lambda *instances: made.plan(view(*instances))


def test_a_request_leaves_an_instance_that_misses_its_target(mitigate: Any) -> None:
    plan: Plan = mitigate(at("d1", 48), at("d2", 35))

    assert pairs(plan) == [("d1", "d2")]
    [migration] = plan.migrations
    assert (migration.policy, migration.rule, migration.order, migration.value) == (
        "binpacking_mitigation",
        "NUM_REQ",
        "LCR",
        1,
    )


@pytest.mark.parametrize(("source_ms", "moves"), [(47.0, False), (47.5, True)])
def test_the_ceiling_is_0_95_of_the_target(mitigate: Any, source_ms: float, moves: bool) -> None:
    assert pairs(mitigate(at("a", source_ms), at("b", 20))) == [("a", "b")] * moves


@pytest.mark.parametrize(("destination_ms", "moves"), [(42.0, True), (42.5, False)])
def test_a_destination_is_below_0_85_of_the_target(mitigate: Any, destination_ms: float, moves: bool) -> None:
    assert pairs(mitigate(at("a", 60), at("b", destination_ms))) == [("a", "b")] * moves


def test_the_slowest_gives_to_the_fullest_that_takes_requests(mitigate: Any) -> None:
    instances = [at("a", 50), at("b", 55), at("c", 55), at("d", 10), at("e", 40), at("f", 40), at("g", 45)]

    assert pairs(mitigate(*instances)) == [("b", "e")]


def test_beyond_the_profile_is_slowest(mitigate: Any) -> None:
    assert pairs(mitigate(at("a", 60), at("b", 300), at("c", 10))) == [("b", "c")]


def test_an_idle_instance_takes_requests(mitigate: Any) -> None:
    assert pairs(mitigate(at("a", 60), at("idle", 0.5))) == [("a", "idle")]


def test_what_is_reserved_for_prefill_takes_no_part(mitigate: Any, consolidate: Any) -> None:
    prefill = {"reserved": Role.PREFILL}

    assert pairs(mitigate(at("a", 60, **prefill), at("b", 20))) == []
    assert pairs(mitigate(at("a", 60), at("b", 20, **prefill))) == []
    assert pairs(consolidate(at("a", 25, **prefill), at("b", 40))) == []
    assert pairs(consolidate(at("a", 25), at("b", 40, **prefill))) == []


def test_a_request_leaves_an_instance_that_has_little_to_do(consolidate: Any) -> None:
    plan: Plan = consolidate(at("d3", 25), at("d4", 40))

    assert pairs(plan) == [("d3", "d4")]
    [migration] = plan.migrations
    assert (migration.rule, migration.order, migration.value) == ("NUM_REQ", "LCR", 1)


@pytest.mark.parametrize(("source_ms", "moves"), [(30.0, True), (30.5, False)])
def test_the_floor_in_single_precision_is_a_little_above_30(consolidate: Any, source_ms: float, moves: bool) -> None:
    assert pairs(consolidate(at("a", source_ms), at("b", 40))) == [("a", "b")] * moves


def test_the_emptiest_gives_to_the_fullest_below_the_limit(consolidate: Any) -> None:
    instances = [at("a", 20), at("b", 10), at("c", 10), at("d", 40), at("e", 41), at("f", 45)]

    assert pairs(consolidate(*instances)) == [("b", "e")]


def test_an_instance_without_decodes_takes_no_part(consolidate: Any) -> None:
    assert pairs(consolidate(at("a", 25), at("idle", 0.5))) == []


def test_the_instance_reserved_for_decode_collects_requests_and_gives_none(consolidate: Any) -> None:
    reserved = at("r", 5, reserved=Role.DECODE)

    assert pairs(consolidate(at("a", 25), at("b", 40), reserved)) == [("a", "r")]


def test_two_instances_below_the_floor_become_one(consolidate: Any) -> None:
    assert pairs(consolidate(at("a", 10), at("b", 20))) == [("a", "b")]
    assert pairs(consolidate(at("a", 10))) == []


@pytest.mark.parametrize("failing", [{"schedulable": False}, {"timestamp_ms": NOW_MS - 70_000}])
def test_a_failing_instance_takes_no_part(mitigate: Any, consolidate: Any, failing: dict[str, Any]) -> None:
    assert pairs(mitigate(at("a", 60, **failing), at("b", 20))) == []
    assert pairs(consolidate(at("a", 20), at("b", 40, **failing))) == []


@pytest.mark.parametrize("content", [None, "{}", '{"results": []}'])
def test_a_profile_that_cannot_be_used_is_refused_with_its_key(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match=r"^rescheduling\.tpot_profile: "):
        create("rescheduling_policy", "binpacking_mitigation").prepare(ReschedulingSettings(tpot_profile=str(path)))


def test_only_instances_that_serve_a_common_model_are_paired(mitigate: Any, consolidate: Any) -> None:
    m, n = {"models": ("m",)}, {"models": ("n",)}

    assert pairs(mitigate(at("a", 60, **m), at("b", 55, **n), at("c", 41, **n), at("d", 20, **n))) == [("b", "c")]
    assert pairs(mitigate(at("a", 60, **m), at("c", 41, **n), at("d", 20, **m))) == [("a", "d")]
    assert pairs(consolidate(at("a", 10, **m), at("b", 20, **n), at("c", 40, **n))) == [("b", "c")]
    assert pairs(consolidate(at("a", 10, **m), at("b", 20, **n), at("r", 5, reserved=Role.DECODE, **n))) == [("b", "r")]
