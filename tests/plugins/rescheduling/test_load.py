from __future__ import annotations

from typing import Any

import pytest

from enginehouse import ConfigError, Role
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.rescheduling import InstanceView
from enginehouse_kit.testing import create
from tests.support.cluster_views import NOW_MS, instance, pairs, policy, view


def decode(name: str, load: float, **fields: Any) -> InstanceView:
    return instance(name, load, role=Role.DECODE, **fields)


FIVE = [decode(name, load) for name, load in zip("abcde", (0.9, 0.3, 0.8, 0.2, 0.4), strict=True)]


def test_the_highest_load_is_paired_with_the_lowest() -> None:
    plan = policy("decode_load", decode_load_threshold=0.7).plan(view(*FIVE))

    assert pairs(plan) == [("a", "d"), ("c", "b")]
    assert [(each.policy, each.rule, each.order, each.value) for each in plan.migrations] == [
        ("decode_load", "TOKEN", "SR", 1024)
    ] * 2


def test_the_selection_of_requests_is_configured() -> None:
    settings: dict[str, Any] = {"req_select_rule": "NUM_REQ", "req_select_order": "LCR", "req_select_value": 3}
    [migration, _] = policy("decode_load", decode_load_threshold=0.7, **settings).plan(view(*FIVE)).migrations

    assert (migration.rule, migration.order, migration.value) == ("NUM_REQ", "LCR", 3)


def test_an_instance_at_the_threshold_is_a_source() -> None:
    at, below = decode("at", 0.7), decode("below", 0.699)

    assert pairs(policy("decode_load", decode_load_threshold=0.7).plan(view(at, below))) == [("at", "below")]


def test_without_a_threshold_each_instance_can_be_both() -> None:
    assert pairs(policy("decode_load", decode_load_threshold=0).plan(view(*FIVE))) == [("a", "d"), ("c", "b")]


def test_equal_loads_are_never_paired() -> None:
    assert pairs(policy("decode_load", decode_load_threshold=0).plan(view(decode("a", 0.5), decode("b", 0.5)))) == []


def test_equal_instances_are_in_the_order_of_their_ids() -> None:
    instances = [decode("z", 0.9), decode("y", 0.9), decode("b", 0.1), decode("a", 0.1)]

    assert pairs(policy("decode_load", decode_load_threshold=0.7).plan(view(*instances))) == [("y", "a"), ("z", "b")]


def test_a_pair_that_is_too_even_is_dropped_with_the_reason() -> None:
    settings = {"decode_load_threshold": 0.7, "load_balance_threshold": 0.6}
    plan = policy("decode_load", **settings).plan(view(*FIVE))

    assert pairs(plan) == [("a", "d")]
    [dropped] = plan.dropped
    assert (dropped.policy, dropped.source, dropped.destination) == ("decode_load", "c", "b")
    assert dropped.why == "their loads differ by 0.5, less than load_balance_threshold (0.6)"


def test_a_difference_equal_to_the_threshold_is_enough() -> None:
    settings = {"decode_load_threshold": 0.7, "load_balance_threshold": 0.5}

    assert pairs(policy("decode_load", **settings).plan(view(decode("a", 1.0), decode("b", 0.5)))) == [("a", "b")]


def test_only_instances_of_the_role_take_part() -> None:
    instances = [instance("neutral", 1.2), decode("decode", 1.2), instance("prefill", 0.1, role=Role.PREFILL)]

    assert pairs(policy("decode_load").plan(view(*instances, decode("idle", 0.1)))) == [("decode", "idle")]
    assert pairs(policy("neutral_load").plan(view(*instances, instance("idle", 0.1)))) == [("neutral", "idle")]


@pytest.mark.parametrize("failing", [{"schedulable": False}, {"timestamp_ms": NOW_MS - 61_000}])
def test_a_failing_instance_is_neither_source_nor_destination(failing: dict[str, Any]) -> None:
    busy, idle = decode("busy", 1.2), decode("idle", 0.1)

    assert pairs(policy("decode_load").plan(view(busy, decode("failing", 0.0, **failing), idle))) == [("busy", "idle")]
    assert pairs(policy("decode_load").plan(view(busy, decode("failing", 0.0, **failing)))) == []
    assert pairs(policy("decode_load").plan(view(idle, decode("failing", 2.0, **failing)))) == []


def test_the_neighbours_of_a_failing_instance_take_no_part() -> None:
    instances = [
        decode("busy", 1.2, node="n1"),
        decode("neighbour", 0.0, node="n2"),
        decode("idle", 0.1, node="n1"),
        instance("failing", node="n2", schedulable=False),
    ]

    assert pairs(policy("decode_load", failover_domain="node").plan(view(*instances))) == [("busy", "idle")]
    assert pairs(policy("decode_load").plan(view(*instances))) == [("busy", "neighbour")]


def test_in_unit_scope_each_unit_is_balanced_at_any_load() -> None:
    instances = [
        *(decode(f"u1-{name}", load, unit="u1") for name, load in zip("abc", (0.3, 0.1, 0.2), strict=True)),
        *(decode(f"u0-{name}", load, unit="u0") for name, load in zip("ab", (0.9, 0.8), strict=True)),
        decode("alone", 1.5),
    ]

    assert pairs(policy("decode_load", load_balance_scope="unit").plan(view(*instances))) == [
        ("u0-a", "u0-b"),
        ("u1-a", "u1-b"),
    ]


def test_another_metric() -> None:
    settings = {"decode_load_metric": "num_requests", "decode_load_threshold": 5}
    instances = [decode("a", 0.1, num_running_requests=4, num_waiting_requests=1), decode("b", 0.9)]

    assert pairs(policy("decode_load", **settings).plan(view(*instances))) == [("a", "b")]


def test_an_unknown_metric_is_refused_with_its_key() -> None:
    made = create("rescheduling_policy", "neutral_load")

    with pytest.raises(
        ConfigError, match=r"rescheduling\.neutral_load_metric: there is no metric 'num_request'.*num_requests"
    ):
        made.prepare(ReschedulingSettings(neutral_load_metric="num_request"))


@pytest.mark.parametrize("threshold", [0.7, 0.0])
@pytest.mark.parametrize("other", [{"models": ("n",)}, {"models": ("m",), "zone": "eu"}])
def test_the_lowest_load_counts_among_instances_that_can_take_the_requests(
    other: dict[str, Any], threshold: float
) -> None:
    full, idle = decode("full", 0.9, models=("m",)), decode("idle", 0.3, models=("m",))
    others = [decode("other-full", 0.8, **other), decode("other-idle", 0.1, **other)]
    plan = policy("decode_load", decode_load_threshold=threshold).plan(view(full, idle, *others))

    assert pairs(plan) == [("full", "idle"), ("other-full", "other-idle")]
