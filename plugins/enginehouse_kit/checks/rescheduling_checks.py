"""The conformance checks of rescheduling policies and migrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

from enginehouse import Role
from enginehouse.drivers import EngineClient
from enginehouse.errors import NotFound
from enginehouse.rescheduling import InstanceAddress, InstanceStatus, RequestView, ReschedulingSettings
from enginehouse_kit.expect import expect, warn_if_slow
from enginehouse_kit.rescheduling import (
    ClusterView,
    DroppedPair,
    InstanceView,
    Migration,
    Migrator,
    Plan,
    ReschedulingPolicy,
)
from enginehouse_kit.selection import MIGRATION_ORDERS, MIGRATION_RULES

_NOW_MS = 1_000_000
_MANY = 100


def check_rescheduling_policy(factory: Callable[[], ReschedulingPolicy]) -> None:
    """Check that ``plan`` is a pure function of the view and moves between two of its instances.

    The destination must be schedulable, and every dropped pair must have a reason.
    """
    it = _prepared(factory)
    warn_if_slow(f"plan of {_MANY} instances", lambda: it.plan(_large()))
    for view, before, twin in zip(_all_views(), _all_views(), _all_views(), strict=True):
        for instance in view.instances:
            reads: Any = it.reads_streams(instance)
            expect(isinstance(reads, bool), f"reads_streams must return True or False, got {reads!r}")
        plan: Any = it.plan(view)
        expect(isinstance(plan, Plan), f"plan must return a Plan, got {plan!r}")
        expect(view == before, "plan must not change the view")
        expect(it.plan(twin) == plan, "plan must give the same answer to the same view")
        expect(_prepared(factory).plan(view) == plan, "plan must give the same answer, whatever was asked before")
        for migration in plan.migrations:
            _check_migration(migration, view)
        for pair in plan.dropped:
            expect(isinstance(pair, DroppedPair), f"dropped must hold DroppedPair objects, got {pair!r}")
            expect(pair.why != "", f"dropped must say why, got {pair}")


def check_migrator(factory: Callable[[], Migrator]) -> None:
    """Check that ``why_not`` is pure, and that it has a reason for instances that the view does not have.

    Does not call ``migrate``, which needs engines.
    """
    it = factory()
    it.prepare(NoMeans())
    for view, before in zip(views(), views(), strict=True):
        names = [each.id for each in view.instances]
        for source, destination in permutations([*names, "unknown"], 2):
            migration = Migration(
                policy="check", source=source, destination=destination, rule="NUM_REQ", order="SR", value=1
            )
            why: Any = it.why_not(migration, view)
            expect(isinstance(why, str), f"why_not must return a string, got {why!r}")
            expect(it.why_not(migration, view) == why, "why_not must give the same answer to the same question")
            expect(view == before, "why_not must not change the view")
            known = source in names and destination in names
            expect(known or why != "", "why_not must have a reason for an instance that the view does not have")


class NoMeans:
    """The ``MigrationMeans`` of a gateway without live requests."""

    def live(self, instance: str) -> Sequence[RequestView]:
        return ()

    async def move(self, request: str, destination: str) -> None:
        raise NotFound(f"There is no live request '{request}'")

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        raise NotFound(f"There is no live request '{request}'")

    def moved_by_engine(self, request: str, destination: str) -> None:
        raise NotFound(f"There is no live request '{request}'")

    def engine(self, instance: str) -> EngineClient:
        raise NotFound(f"There is no instance '{instance}'")

    def address(self, instance: str) -> InstanceAddress:
        return InstanceAddress()

    def kv_tokens(self, instance: str) -> int:
        return 0


def views() -> Iterator[ClusterView]:
    """No instance, one, equal ones, a busy and an idle one, each role, a failing one, one that reports nothing."""
    yield ClusterView(now_ms=_NOW_MS)
    yield _view(_instance("a"))
    yield _view(_instance("a", running=3), _instance("b", running=3))
    yield _view(_instance("busy", running=120, waiting=7), _instance("idle"))
    yield _view(*(_instance(role.value, running=60 * place, role=role) for place, role in enumerate(Role)))
    yield _view(_instance("a", running=5, waiting=1), _instance("b", schedulable=False), _instance("c"))
    yield _view(_instance("a", running=5, waiting=1), InstanceView(id="silent"))


def _prepared(factory: Callable[[], ReschedulingPolicy]) -> ReschedulingPolicy:
    policy = factory()
    policy.prepare(ReschedulingSettings())
    return policy


def _all_views() -> Iterator[ClusterView]:
    yield from views()
    yield _large()


def _large() -> ClusterView:
    return _view(*(_instance(f"gpu-{number}", running=number % 150, waiting=number % 3) for number in range(_MANY)))


def _view(*instances: InstanceView) -> ClusterView:
    return ClusterView(now_ms=_NOW_MS, instances=instances)


def _instance(
    name: str, *, running: int = 0, waiting: int = 0, role: Role = Role.NEUTRAL, schedulable: bool = True
) -> InstanceView:
    status = InstanceStatus(
        instance_id=name,
        schedulable=schedulable,
        timestamp_ms=_NOW_MS - 100,
        num_running_requests=running,
        num_waiting_requests=waiting,
        scheduler_running_to_decode_requests_num=running,
        scheduler_running_to_decode_tokens_num=1_000 * running,
        num_total_gpu_tokens=100_000,
        num_used_gpu_tokens=1_000 * running,
    )
    requests = tuple(
        RequestView(id=f"{name}-{number}", arrived_ms=number, prompt_tokens=900, output_tokens=100)
        for number in range(running)
    )
    return InstanceView(id=name, node=f"node-{name}", unit="unit", role=role, status=status, requests=requests)


def _check_migration(migration: object, view: ClusterView) -> None:
    expect(isinstance(migration, Migration), f"plan must give Migration objects, got {migration!r}")
    assert isinstance(migration, Migration)
    instances = {each.id: each for each in view.instances}
    ends = {migration.source, migration.destination}
    expect(ends <= instances.keys(), f"plan must name instances of the view, got {migration}")
    expect(len(ends) == 2, f"plan must move to another instance, got {migration}")
    expect(
        instances[migration.destination].status.schedulable, f"plan must move to a schedulable instance: {migration}"
    )
    expect(
        migration.rule in MIGRATION_RULES, f"rule must be one of {', '.join(MIGRATION_RULES)}, got {migration.rule!r}"
    )
    expect(
        migration.order in MIGRATION_ORDERS,
        f"order must be one of {', '.join(MIGRATION_ORDERS)}, got {migration.order!r}",
    )
    expect(
        migration.moves_everything or migration.value > 0,
        f"value must be above 0, or -1 with NUM_REQ, got {migration.value!r}",
    )
    expect(migration.policy != "", "policy must be the type of the policy")
    known = {request.id for request in instances[migration.source].requests}
    expect(set(migration.requests) <= known, f"requests must be requests of the source, got {migration}")
