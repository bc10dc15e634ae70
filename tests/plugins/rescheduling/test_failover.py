from __future__ import annotations

from typing import Any

import pytest

from enginehouse import Role
from enginehouse_kit.rescheduling import InstanceView
from tests.support.cluster_views import NOW_MS, instance, pairs, policy, view

ROLES = {"prefill_failover": Role.PREFILL, "decode_failover": Role.DECODE, "neutral_failover": Role.NEUTRAL}


def placed(name: str, node: str = "", unit: str = "", **fields: Any) -> InstanceView:
    return instance(name, node=node, unit=unit, **fields)


@pytest.mark.parametrize(("type", "role"), ROLES.items())
def test_everything_leaves_a_failing_instance_for_the_others_of_its_role(type: str, role: Role) -> None:
    others = [instance(f"{each.value}-failing", role=each, schedulable=False) for each in Role if each is not role]
    failing, healthy = instance("failing", role=role, schedulable=False), instance("healthy", role=role)
    plan = policy(type).plan(view(*others, failing, healthy))

    assert pairs(plan) == [("failing", "healthy")]
    [migration] = plan.migrations
    assert (migration.policy, migration.rule, migration.order, migration.value) == (type, "NUM_REQ", "LR", -1)


def test_destinations_take_turns_in_the_order_of_their_ids() -> None:
    instances = [*(instance(f"s{n}", schedulable=False) for n in (3, 1, 2)), instance("d2"), instance("d1")]

    assert pairs(policy("neutral_failover").plan(view(*instances))) == [("s1", "d1"), ("s2", "d2"), ("s3", "d1")]


def test_without_a_healthy_instance_nothing_moves() -> None:
    assert pairs(policy("neutral_failover").plan(view(instance("a", schedulable=False)))) == []


@pytest.mark.parametrize(("age_s", "is_stale"), [(60.999, False), (61.0, True)])
def test_ages_count_in_whole_seconds(age_s: float, is_stale: bool) -> None:
    old = instance("old", timestamp_ms=NOW_MS - int(age_s * 1000))

    assert pairs(policy("neutral_failover").plan(view(old, instance("new")))) == [("old", "new")] * is_stale


UNITS = [
    placed("failing", "n1", "u1", schedulable=False),
    placed("same-node", "n1", "u2"),
    placed("same-unit", "n2", "u1"),
    placed("unit-of-same-node", "n3", "u2"),
    placed("healthy", "n4", "u3"),
]
PARALLEL = [placed("parallel", "n5", "u5", data_parallel_size=2)]


@pytest.mark.parametrize(
    ("domain", "others", "leave"),
    [
        ("instance", PARALLEL, {"failing"}),
        ("node", PARALLEL, {"failing", "same-node"}),
        ("instance-unit", PARALLEL, {"failing", "same-unit"}),
        ("instance-unit", [], {"failing"}),
        ("node-unit", PARALLEL, {"failing", "same-node", "same-unit", "unit-of-same-node"}),
        ("node-unit", [], {"failing", "same-node"}),
    ],
)
def test_the_whole_failure_domain_is_evacuated(domain: str, others: list[InstanceView], leave: set[str]) -> None:
    plan = policy("neutral_failover", failover_domain=domain).plan(view(*UNITS, *others))

    assert {each.source for each in plan.migrations} == leave
    assert {each.destination for each in plan.migrations}.isdisjoint(leave)


@pytest.mark.parametrize("domain", ["node", "instance-unit", "node-unit"])
def test_instances_without_a_label_share_none(domain: str) -> None:
    plan = policy("neutral_failover", failover_domain=domain).plan(
        view(placed("failing", schedulable=False, data_parallel_size=2), placed("healthy"))
    )

    assert pairs(plan) == [("failing", "healthy")]


def test_an_instance_of_another_role_fails_its_node_too() -> None:
    decode, failing = placed("decode", "n1", role=Role.DECODE), placed("failing", "n1", schedulable=False)
    plan = policy("decode_failover", failover_domain="node").plan(
        view(decode, failing, placed("other", "n2", role=Role.DECODE))
    )

    assert pairs(plan) == [("decode", "other")]


def test_requests_go_where_their_model_is_served() -> None:
    failing = [
        placed(name, models=(model,), schedulable=False) for name, model in (("f1", "m"), ("f2", "n"), ("f3", "m"))
    ]
    healthy = [placed("a", models=("n",)), placed("b", models=("m",)), placed("c", models=("m",))]

    plan = policy("neutral_failover").plan(view(*failing, *healthy))
    assert pairs(plan) == [("f1", "b"), ("f2", "a"), ("f3", "c")]


def test_requests_stay_in_their_zone() -> None:
    failing = placed("failing", zone="eu", schedulable=False)
    plan = policy("neutral_failover").plan(view(failing, placed("a"), placed("b", zone="eu")))

    assert pairs(plan) == [("failing", "b")]
