from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from enginehouse_kit.rescheduling import (
    ClusterView,
    DroppedPair,
    InstanceView,
    Migrated,
    Migration,
    Migrator,
    Plan,
    ReschedulingPolicy,
)
from enginehouse_kit.testing import check_migrator, check_rescheduling_policy

pytestmark = pytest.mark.filterwarnings("ignore::enginehouse_kit.testing.SlowPluginWarning")
"""A plan for 100 instances takes 50 ms where many processes share a core."""


class Moves(ReschedulingPolicy):
    """Moves from the first to the last instance, with some fields of the migration replaced."""

    changes: Any = {}

    def plan(self, view: ClusterView) -> Plan:
        instances = [instance for instance in view.instances if instance.status.schedulable]
        if len(instances) < 2:
            return Plan()
        fields = {"policy": "moves", "rule": "NUM_REQ", "order": "SR", "value": 1}
        ends = {"source": instances[0].id, "destination": instances[-1].id}
        return Plan(migrations=(Migration(**{**fields, **ends, **self.changes}),))


class ToNowhere(Moves):
    changes: Any = {"destination": "elsewhere"}


class OddRule(Moves):
    changes: Any = {"rule": "MANY"}


class OddOrder(Moves):
    changes: Any = {"order": "ANY"}


class NoValue(Moves):
    changes: Any = {"value": 0}


class AllTokens(Moves):
    changes: Any = {"value": -1, "rule": "TOKEN"}


class Everything(Moves):
    changes: Any = {"value": -1}


class OthersRequests(Moves):
    changes: Any = {"requests": ("elsewhere-1",)}


class Nameless(Moves):
    changes: Any = {"policy": ""}


class ToItself(Moves):
    def plan(self, view: ClusterView) -> Plan:
        return Plan(migrations=tuple(move(each, each) for each in view.instances))


class ToTheFailing(Moves):
    def plan(self, view: ClusterView) -> Plan:
        failing = [each for each in view.instances if not each.status.schedulable]
        return Plan(migrations=tuple(move(view.instances[0], each) for each in failing))


class DropsSilently(Moves):
    def plan(self, view: ClusterView) -> Plan:
        return Plan(
            dropped=tuple(DroppedPair(policy="x", source=each.id, destination="b", why="") for each in view.instances)
        )


class NeedsTwo(Moves):
    def plan(self, view: ClusterView) -> Plan:
        return super().plan(view) if view.instances[0].id else Plan()


class ReadsSome(Moves):
    def reads_streams(self, instance: InstanceView) -> Any:
        return instance.id


class List(Moves):
    def plan(self, view: ClusterView) -> Any:
        return list(super().plan(view).migrations)


class Alternates(Moves):
    calls = count()

    def plan(self, view: ClusterView) -> Plan:
        return super().plan(view) if next(self.calls) % 2 else Plan()


def move(source: InstanceView, destination: InstanceView) -> Migration:
    return Migration(policy="x", source=source.id, destination=destination.id, rule="TOKEN", order="SR", value=1)


@pytest.mark.parametrize(
    ("broken", "error", "rule"),
    [
        (ToNowhere, AssertionError, "must name instances of the view"),
        (OddRule, AssertionError, "rule must be one of"),
        (OddOrder, AssertionError, "order must be one of"),
        (NoValue, AssertionError, "value must be above 0"),
        (AllTokens, AssertionError, "value must be above 0"),
        (OthersRequests, AssertionError, "must be requests of the source"),
        (Nameless, AssertionError, "policy must be the type"),
        (ToItself, AssertionError, "must move to another instance"),
        (ToTheFailing, AssertionError, "must move to a schedulable instance"),
        (DropsSilently, AssertionError, "must say why"),
        (NeedsTwo, IndexError, "out of range"),
        (ReadsSome, AssertionError, "reads_streams must return True or False"),
        (List, AssertionError, "plan must return a Plan"),
        (Alternates, AssertionError, "same answer"),
    ],
)
def test_a_policy_that_breaks_a_rule_is_caught(
    broken: type[ReschedulingPolicy], error: type[Exception], rule: str
) -> None:
    with pytest.raises(error, match=rule):
        check_rescheduling_policy(broken)


@pytest.mark.parametrize("policy", [Moves, Everything])
def test_a_policy_that_keeps_the_rules_passes(policy: type[ReschedulingPolicy]) -> None:
    check_rescheduling_policy(policy)


class Can(Migrator):
    def why_not(self, migration: Migration, view: ClusterView) -> str:
        known = {instance.id for instance in view.instances}
        return "" if {migration.source, migration.destination} <= known else "it is not known"

    async def migrate(self, migration: Migration) -> Migrated:
        return Migrated()


class Always(Can):
    def why_not(self, migration: Migration, view: ClusterView) -> str:
        return ""


class Says(Can):
    def why_not(self, migration: Migration, view: ClusterView) -> Any:
        return False


class Once(Can):
    calls = count()

    def why_not(self, migration: Migration, view: ClusterView) -> str:
        return super().why_not(migration, view) or ("busy" if next(self.calls) % 2 else "")


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Always, "must have a reason for an instance that the view does not have"),
        (Says, "why_not must return a string, got False"),
        (Once, "same answer to the same question"),
    ],
)
def test_a_migrator_that_breaks_a_rule_is_caught(broken: type[Migrator], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_migrator(broken)


def test_a_migrator_that_keeps_the_rules_passes() -> None:
    check_migrator(Can)
