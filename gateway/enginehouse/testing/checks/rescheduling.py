"""The conformance checks of rescheduling policies and migrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import permutations
from typing import Any

from enginehouse.domain.migration import ClusterView, InstanceView, Migration
from enginehouse.domain.replica import Role
from enginehouse.interfaces.migrators import Migrator
from enginehouse.interfaces.rescheduling import ReschedulingPolicy
from enginehouse.testing.checks.expect import expect, expect_sequence
from enginehouse.testing.checks.speed import warn_if_slow

_RULES = ("NUM_REQ", "TOKEN", "RATIO")
_MANY = 100


def check_rescheduling_policy(factory: Callable[[], ReschedulingPolicy]) -> None:
    """Check that ``plan`` is a pure function of the view and moves something between two of its instances."""
    it = factory()
    warn_if_slow(f"plan of {_MANY} instances", lambda: it.plan(_large()))
    for view in (*views(), _large()):
        before = deepcopy(view)
        planned = it.plan(view)
        expect_sequence("plan", planned)
        expect(view == before, "plan must not change the view")
        expect(list(it.plan(deepcopy(view))) == list(planned), "plan must give the same answer to the same view")
        expect(list(factory().plan(view)) == list(planned), "plan must give the same answer, whatever was asked before")
        for migration in planned:
            _check_migration(migration, view)


def check_migrator(factory: Callable[[], Migrator]) -> None:
    """Check that ``can`` is a pure question with a yes or no, and no for instances that the view does not have.

    ``migrate`` is not called: it needs engines.
    """
    it = factory()
    for view in views():
        names = [each.id for each in view.instances]
        for source, destination in permutations([*names, "unknown"], 2):
            migration = Migration(
                policy="check", source=source, destination=destination, rule="NUM_REQ", order="SR", value=1
            )
            before = deepcopy(view)
            can: Any = it.can(migration, view)
            expect(isinstance(can, bool), f"can must return a bool, got {can!r}")
            expect(it.can(migration, view) == can, "can must give the same answer to the same question")
            expect(view == before, "can must not change the view")
            known = source in names and destination in names
            expect(known or not can, "can must be false for an instance that the view does not have")


def views() -> Iterator[ClusterView]:
    """No instance, one, equal ones, a busy and an idle one, each role, and one that reports nothing."""
    yield ClusterView(now_ms=1_000)
    yield _view(_instance("a"))
    yield _view(_instance("a", running=3), _instance("b", running=3))
    yield _view(_instance("busy", running=40, waiting=7), _instance("idle"))
    yield _view(*(_instance(role.value, running=9 * place, role=role) for place, role in enumerate(Role)))
    yield _view(_instance("a", running=5, waiting=1), InstanceView(id="silent"))


def _large() -> ClusterView:
    return _view(*(_instance(f"gpu-{number}", running=number % 50, waiting=number % 3) for number in range(_MANY)))


def _view(*instances: InstanceView) -> ClusterView:
    return ClusterView(now_ms=1_000, instances=instances)


def _instance(name: str, *, running: int = 0, waiting: int = 0, role: Role = Role.NEUTRAL) -> InstanceView:
    status = {
        "instance_id": name,
        "schedulable": True,
        "timestamp_ms": 900,
        "num_running_requests": running,
        "num_waiting_requests": waiting,
        "num_total_gpu_tokens": 100_000,
        "num_used_gpu_tokens": 1_000 * running,
    }
    return InstanceView(id=name, node=f"node-{name}", unit="unit", role=role, status=status)


def _check_migration(migration: object, view: ClusterView) -> None:
    expect(isinstance(migration, Migration), f"plan must give Migration objects, got {migration!r}")
    assert isinstance(migration, Migration)
    names = {each.id for each in view.instances}
    ends = {migration.source, migration.destination}
    expect(ends <= names, f"plan must name instances of the view, got {migration}")
    expect(len(ends) == 2, f"plan must move to another instance, got {migration}")
    expect(migration.rule in _RULES, f"rule must be one of {', '.join(_RULES)}, got {migration.rule!r}")
    expect(migration.value > 0, f"value must be above 0, got {migration.value!r}")
    expect(migration.policy != "", "policy must be the type of the policy")
