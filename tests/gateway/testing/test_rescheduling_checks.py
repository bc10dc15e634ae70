from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from enginehouse import ClusterView, Migration, Migrator, ReschedulingPolicy
from enginehouse.testing import check_migrator, check_rescheduling_policy


class Moves(ReschedulingPolicy):
    """Moves from the first to the last instance, with some fields of the migration replaced."""

    changes: Any = {}

    def plan(self, view: ClusterView) -> Sequence[Migration]:
        if len(view.instances) < 2:
            return []
        ends = {"source": view.instances[0].id, "destination": view.instances[-1].id}
        return [Migration(**{"policy": "moves", "rule": "NUM_REQ", "order": "SR", "value": 1, **ends, **self.changes})]


class ToNowhere(Moves):
    changes: Any = {"destination": "elsewhere"}


class OddRule(Moves):
    changes: Any = {"rule": "MANY"}


class NoValue(Moves):
    changes: Any = {"value": 0}


class Nameless(Moves):
    changes: Any = {"policy": ""}


class ToItself(Moves):
    def plan(self, view: ClusterView) -> Sequence[Migration]:
        return [
            Migration(policy="x", source=each.id, destination=each.id, rule="TOKEN", order="SR", value=1)
            for each in view.instances
        ]


class NeedsTwo(Moves):
    def plan(self, view: ClusterView) -> Sequence[Migration]:
        return super().plan(view) if view.instances[0].id else []


class Lazy(Moves):
    def plan(self, view: ClusterView) -> Any:
        return (each for each in super().plan(view))


class Alternates(Moves):
    calls = count()

    def plan(self, view: ClusterView) -> Sequence[Migration]:
        return super().plan(view) if next(self.calls) % 2 else []


class TakesNotes(Moves):
    def plan(self, view: ClusterView) -> Sequence[Migration]:
        for instance in view.instances:
            instance.status["seen"] = True  # type: ignore[index]
        return []


@pytest.mark.parametrize(
    ("broken", "error", "rule"),
    [
        (ToNowhere, AssertionError, "must name instances of the view"),
        (OddRule, AssertionError, "rule must be one of"),
        (NoValue, AssertionError, "value must be above 0"),
        (Nameless, AssertionError, "policy must be the type"),
        (ToItself, AssertionError, "must move to another instance"),
        (NeedsTwo, IndexError, "out of range"),
        (Lazy, AssertionError, "plan must return a sequence"),
        (Alternates, AssertionError, "same answer"),
        (TakesNotes, AssertionError, "must not change the view"),
    ],
)
def test_a_policy_that_breaks_a_rule_is_caught(
    broken: type[ReschedulingPolicy], error: type[Exception], rule: str
) -> None:
    with pytest.raises(error, match=rule):
        check_rescheduling_policy(broken)


def test_a_policy_that_keeps_the_rules_passes() -> None:
    check_rescheduling_policy(Moves)


class Can(Migrator):
    def can(self, migration: Migration, view: ClusterView) -> bool:
        return {migration.source, migration.destination} <= {instance.id for instance in view.instances}

    async def migrate(self, migration: Migration) -> int:
        return 0


class Always(Can):
    def can(self, migration: Migration, view: ClusterView) -> bool:
        return True


class Says(Can):
    def can(self, migration: Migration, view: ClusterView) -> Any:
        return "yes"


class Once(Can):
    calls = count()

    def can(self, migration: Migration, view: ClusterView) -> bool:
        return super().can(migration, view) and next(self.calls) % 2 == 0


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Always, "must be false for an instance that the view does not have"),
        (Says, "can must return a bool, got 'yes'"),
        (Once, "same answer to the same question"),
    ],
)
def test_a_migrator_that_breaks_a_rule_is_caught(broken: type[Migrator], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_migrator(broken)


def test_a_migrator_that_keeps_the_rules_passes() -> None:
    check_migrator(Can)
