from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from enginehouse import Role
from enginehouse.domain.plugin_id import PluginId
from enginehouse_kit.rescheduling import (
    ClusterView,
    DroppedPair,
    InstanceView,
    Migrated,
    Migration,
    Plan,
    ReschedulingPolicy,
)
from enginehouse_rescheduling.planner import Planner, RecentMoves
from tests.support.cluster_views import NOW_MS, instance, pairs, view

ABC = [instance(name) for name in "abc"]


class Scripted(ReschedulingPolicy):
    """Plans what it was told."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def plan(self, view: ClusterView) -> Plan:
        if isinstance(self._plan, Exception):
            raise self._plan
        planned: Plan = self._plan
        return planned


def move(ends: str, policy: str = "p", **fields: Any) -> Migration:
    values = {"rule": "NUM_REQ", "order": "SR", "value": 1, **fields}
    return Migration(policy=policy, source=ends[0], destination=ends[1], **values)


def planned(
    *plans: Any, instances: Sequence[Any] = ABC, recent: RecentMoves | None = None
) -> tuple[list[tuple[str, str]], list[str]]:
    """The pairs that are kept, and why others are not; ``plans`` are those of policies, as migrations or whole."""
    policies = [
        (
            PluginId("rescheduling_policy", f"p{place}", "test"),
            Scripted(Plan(migrations=tuple(plan)) if isinstance(plan, list) else plan),
        )
        for place, plan in enumerate(plans)
    ]
    plan = Planner(policies).plan(view(*instances), recent or RecentMoves(2))
    return pairs(plan), [each.why for each in plan.dropped]


def test_policies_run_in_order() -> None:
    assert planned([move("ab")], [move("cb")]) == ([("a", "b"), ("c", "b")], [])


def test_the_exact_reverse_of_an_earlier_pair_is_dropped() -> None:
    assert planned([move("ab", "first"), move("bc"), move("ba")], [move("cb")]) == (
        [("a", "b"), ("b", "c")],
        ["first moves the other way", "p moves the other way"],
    )


def test_pairs_with_one_end_in_common_are_kept() -> None:
    """One source to two destinations, two sources to one, and chains, as in Llumnix."""
    assert planned([move("ab"), move("ac"), move("cb")]) == ([("a", "b"), ("a", "c"), ("c", "b")], [])


def test_a_pair_is_planned_once() -> None:
    assert planned([move("ab", "first")], [move("ab", "second")]) == ([("a", "b")], ["first moves the same way"])


def test_what_a_policy_drops_is_told() -> None:
    dropped = DroppedPair(policy="p", source="a", destination="b", why="too even")

    assert planned(Plan(dropped=(dropped,))) == ([], ["too even"])


@pytest.mark.parametrize(
    ("ends", "why"), [("az", "the view does not have both instances"), ("aa", "both are the same")]
)
def test_instances_that_cannot_be_a_pair(ends: str, why: str) -> None:
    kept, [reason] = planned([move(ends)])

    assert kept == []
    assert reason.startswith(why)


def test_requests_move_only_between_instances_that_share_a_model() -> None:
    instances = [
        instance("a", models=("m", "n")),
        instance("b", models=("o",)),
        instance("c", models=("n",)),
        instance("d"),
    ]

    assert planned([move("ab"), move("ac"), move("ad")], instances=instances) == (
        [("a", "c"), ("a", "d")],
        ["they share no model"],
    )


def test_an_instance_rests_after_a_migration() -> None:
    recent = RecentMoves(2)
    recent.note(move("ab"), Migrated(moved=("r",)), NOW_MS - 1999)
    recent.note(move("cb"), Migrated(refused={"s": "it has ended"}), NOW_MS)

    assert planned([move("ac"), move("cb")], recent=recent) == (
        [],
        ["a rests after a migration (cool_down)", "b rests after a migration (cool_down)"],
    )
    assert planned([move("ac")], recent=_later(recent)) == ([("a", "c")], [])


def _later(recent: RecentMoves) -> RecentMoves:
    """As if the migration had ended two seconds ago."""
    later = RecentMoves(2)
    later.note(move("ab"), Migrated(moved=("r",)), NOW_MS - 2000)
    return later


def test_without_a_cool_down_no_instance_rests() -> None:
    recent = RecentMoves(0)
    recent.note(move("ab"), Migrated(moved=("r",)), NOW_MS)

    assert planned([move("ab"), move("ca")], recent=recent) == ([("a", "b"), ("c", "a")], [])


def test_an_evacuation_does_not_wait_for_rested_instances() -> None:
    recent = RecentMoves(2)
    recent.note(move("ab"), Migrated(moved=("r",)), NOW_MS)

    assert planned([move("bc", value=-1)], recent=recent) == ([("b", "c")], [])


def test_a_request_does_not_return_so_soon() -> None:
    recent = RecentMoves(2)
    recent.note(move("ab"), Migrated(moved=("r", "s")), NOW_MS - 500)

    assert recent.returns("r", "a", NOW_MS)
    assert not recent.returns("r", "c", NOW_MS)
    assert not recent.returns("t", "a", NOW_MS)
    assert not recent.returns("r", "a", NOW_MS + 1500)


def test_a_named_request_moves_once() -> None:
    named = [
        move("ab", requests=("r", "s"), value=2),
        move("ac", requests=("s", "t"), value=2),
        move("ac", requests=("r",)),
    ]
    policy = Scripted(Plan(migrations=tuple(named)))
    plan = Planner([(PluginId("rescheduling_policy", "p", ""), policy)]).plan(view(*ABC), RecentMoves(2))

    assert [(each.requests, each.value) for each in plan.migrations] == [(("r", "s"), 2), (("t",), 1)]
    assert [each.why for each in plan.dropped] == ["earlier pairs move all of its requests"]


def test_an_instance_takes_as_many_migrations_as_it_says() -> None:
    slots = instance("c", num_available_migrate_in_slots=1, num_migrate_in_reqs=3)

    assert planned([move("ac"), move("bc")], instances=[*ABC[:2], slots]) == (
        [("a", "c")],
        ["c takes no more migrations at once (1 available)"],
    )
    full = instance("c", num_migrate_in_reqs=4)
    assert planned([move("ac")], instances=[*ABC[:2], full])[1] == ["c takes no more migrations at once (0 available)"]


def test_an_instance_takes_as_many_tokens_as_it_says() -> None:
    tokens = instance("c", num_available_migrate_in_tokens=1500)

    assert planned(
        [move("ac", rule="TOKEN", value=1024), move("bc", rule="TOKEN", value=1024)], instances=[*ABC[:2], tokens]
    ) == ([("a", "c")], ["c takes no more tokens of migrations at once (1500 available)"])
    full = instance("c", num_migrate_in_tokens=1500)
    assert planned([move("ac", rule="TOKEN", value=1)], instances=[*ABC[:2], full])[1] == [
        "c takes no more tokens of migrations at once (0 available)"
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        RuntimeError("broken"),
        Plan(migrations=("ab",)),  # type: ignore[arg-type]
        Plan(migrations=(msgspec.structs.replace(move("ac"), value="all"),)),
        Plan(migrations=(msgspec.structs.replace(move("ac"), source=["a"]),)),
        Plan(migrations=(msgspec.structs.replace(move("ac"), rule="TOKEN", value=float("inf")),)),
        Plan(migrations=(msgspec.structs.replace(move("ac"), requests=(Role.DECODE, object())),)),
    ],
)
def test_a_policy_that_fails_stops_no_other(wrong: Any) -> None:
    assert planned(wrong, [move("ab")]) == ([("a", "b")], [])


class Reader(Scripted):
    """Reads the streams of a given instance, or fails."""

    def reads_streams(self, instance: InstanceView) -> bool:
        if isinstance(self._plan, Exception):
            raise self._plan
        return bool(instance.id == self._plan)


def test_streams_are_read_if_a_policy_wants_to() -> None:
    policies = [Reader(RuntimeError("broken")), Reader("a"), Reader("b")]
    planner = Planner([(PluginId("rescheduling_policy", "p", "test"), each) for each in policies])
    assert [planner.reads_streams(each) for each in ABC] == [True, True, False]


class Witness(Scripted):
    """Notes the views that it is given."""

    def __init__(self) -> None:
        super().__init__(Plan())
        self.seen: list[ClusterView] = []

    def plan(self, view: ClusterView) -> Plan:
        self.seen.append(view)
        return super().plan(view)


def test_all_policies_of_a_round_see_the_same_figures() -> None:
    policies = [Witness(), Witness()]
    prepared = [(PluginId("rescheduling_policy", "p", "test"), each) for each in policies]
    given = view(*ABC)
    Planner(prepared).plan(given, RecentMoves(2))
    assert all(seen is given for each in policies for seen in each.seen)
    assert [len(each.seen) for each in policies] == [1, 1]


def test_roles_are_the_policies_affair() -> None:
    instances = [instance("a", role=Role.PREFILL), instance("b", role=Role.DECODE)]

    assert planned([move("ab")], instances=instances) == ([("a", "b")], [])
