"""What holds for every policy and every view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from enginehouse import Role
from enginehouse.config.schema import Config
from enginehouse.domain.plugin_id import PluginId
from enginehouse.rescheduling import RequestView
from enginehouse_kit.rescheduling import ClusterView, InstanceView, Plan
from enginehouse_rescheduling.planner import Planner, RecentMoves
from enginehouse_rescheduling.policies.instances import failed_domain
from tests.support.cluster_views import NOW_MS, instance, policy, view

TYPES = (
    "decode_load",
    "neutral_load",
    "prefill_failover",
    "decode_failover",
    "neutral_failover",
    "binpacking_mitigation",
    "binpacking_consolidation",
    "kv_projection",
)
ADAPTIVE = ("binpacking_mitigation", "binpacking_consolidation")
DOMAINS = ("instance", "node", "instance-unit", "node-unit")


@st.composite
def instances(draw: st.DrawFn, name: str) -> InstanceView:
    running = draw(st.integers(0, 200))
    fields: dict[str, Any] = {
        "role": draw(st.sampled_from(Role)),
        "reserved": draw(st.sampled_from([None, None, Role.PREFILL, Role.DECODE])),
        "node": draw(st.sampled_from(["", "n1", "n2"])),
        "unit": draw(st.sampled_from(["", "u1", "u2"])),
        "models": draw(st.sampled_from([(), ("m",), ("m", "o"), ("o",)])),
        "data_parallel_size": draw(st.sampled_from([0, 1, 2])),
        "block_size": 10,
        "schedulable": draw(st.booleans()) or draw(st.booleans()),
        "timestamp_ms": NOW_MS - draw(st.sampled_from([0, 60_000, 61_000])),
        "scheduler_running_to_decode_requests_num": running,
        "scheduler_running_to_decode_tokens_num": running * draw(st.integers(0, 2000)),
        "num_available_migrate_in_slots": draw(st.sampled_from([0, 1])),
    }
    requests = tuple(
        RequestView(id=f"{name}-{number}", prompt_tokens=draw(st.integers(1, 300)), output_tokens=1, max_tokens=100)
        for number in range(draw(st.integers(0, 4)))
    )
    return instance(name, draw(st.sampled_from([0.0, 0.5, 0.9, 1.5])), requests=requests, **fields)


@st.composite
def views(draw: st.DrawFn) -> ClusterView:
    return view(*(draw(instances(f"i{number}")) for number in range(draw(st.integers(0, 6)))))


@settings(max_examples=100)
@given(given_view=views(), domain=st.sampled_from(DOMAINS), scope=st.sampled_from(["cluster", "unit"]))
def test_no_policy_plans_nonsense(given_view: ClusterView, domain: str, scope: str) -> None:
    failed = failed_domain(given_view, domain, 60)
    by_id = {each.id: each for each in given_view.instances}
    for type in TYPES:
        plan = policy(type, failover_domain=domain, load_balance_scope=scope).plan(given_view)
        check_plan(type, plan, failed, by_id)


def check_plan(type: str, plan: Plan, failed: Set[str], by_id: Mapping[str, InstanceView]) -> None:
    for migration in plan.migrations:
        assert migration.source != migration.destination
        assert migration.destination not in failed
        assert (migration.source in failed) == type.endswith("_failover")
        if type in ADAPTIVE:
            assert by_id[migration.source].reserved is not Role.PREFILL
            assert by_id[migration.destination].reserved is not Role.PREFILL
    if type in ADAPTIVE:
        assert len(plan.migrations) <= 1


@given(given_view=views())
def test_no_plan_breaks_a_rule(given_view: ClusterView) -> None:
    rescheduling = Config().rescheduling
    policies = [(PluginId("rescheduling_policy", type, ""), policy(type)) for type in TYPES]
    plan = Planner(policies).plan(given_view, RecentMoves(rescheduling.cool_down))

    by_id = {each.id: each for each in given_view.instances}
    ends = [(each.source, each.destination) for each in plan.migrations]
    assert not {(destination, source) for source, destination in ends} & set(ends)
    named = Counter(request for each in plan.migrations for request in each.requests)
    assert not named or max(named.values()) == 1
    whole = Counter((each.source, each.destination) for each in plan.migrations if not each.requests)
    assert not whole or max(whole.values()) == 1
    for source, destination in ends:
        assert by_id[source].shares_model(by_id[destination])
    for name, arriving in Counter(destination for _, destination in ends).items():
        assert arriving <= (by_id[name].status.num_available_migrate_in_slots or arriving)
    assert all(each.why for each in plan.dropped)
