"""Runs all policies on one view, and drops pairs that must not be carried out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from enginehouse import RequestError, ReschedulingPolicy
from enginehouse.rescheduling import ClusterView, DroppedPair, InstanceView, Migration, Plan, ReschedulingSettings
from enginehouse.runtime import PluginId, plugin_errors, wrong_result
from enginehouse.services import Configured
from enginehouse_rescheduling.rounds.pair_rules import PairRules
from enginehouse_rescheduling.rounds.recent_moves import RecentMoves

_ADAPTIVE_PD = ("binpacking_consolidation", "binpacking_mitigation")


class Planner:
    """The configured policies, in order. Pure, except for the log of policies that fail."""

    def __init__(self, policies: Sequence[tuple[PluginId, ReschedulingPolicy]]) -> None:
        self._policies = policies
        unread = ReschedulingPolicy.reads_streams
        self._readers = [each for each in policies if type(each[1]).reads_streams is not unread]

    def reads_streams(self, instance: InstanceView) -> bool:
        """Whether a policy reads the tokens of the instance's requests. The log names one that fails."""
        return any(_reads_streams(*reader, instance) for reader in self._readers)

    def plan(self, view: ClusterView, recent: RecentMoves) -> Plan:
        """The migrations to carry out together. ``recent``: the last moves.

        A policy that fails plans nothing, and the log names it.
        """
        rules = PairRules(view, recent)
        migrations: list[Migration] = []
        dropped: list[DroppedPair] = []
        for plugin, policy in self._policies:
            planned = _run(plugin, policy, view)
            dropped += planned.dropped
            for migration in planned.migrations:
                kept, why = rules.check(migration)
                if kept is None:
                    dropped.append(_dropped(migration, why))
                else:
                    migrations.append(kept)
        return Plan(migrations=tuple(migrations), dropped=tuple(dropped))


def build_planner(gateway: Configured) -> Planner:
    """The configured policies, prepared. Raises ``ConfigError``, and ``PluginError`` if one fails."""
    settings: ReschedulingSettings = gateway.table("rescheduling")
    return Planner(
        [
            gateway.plugin(
                "rescheduling_policy", type, "rescheduling.policies", prepare=lambda policy: policy.prepare(settings)
            )
            for type in _types(settings)
        ]
    )


def _types(settings: ReschedulingSettings) -> Iterator[str]:
    """The policies in order. As in Llumnix, ``adaptive_pd`` adds those that it needs."""
    yield from settings.policies
    if settings.adaptive_pd:
        yield from (type for type in _ADAPTIVE_PD if type not in settings.policies)


def _reads_streams(plugin: PluginId, policy: ReschedulingPolicy, instance: InstanceView) -> bool:
    with suppress(RequestError), plugin_errors(plugin):
        return policy.reads_streams(instance)
    return False


def _run(plugin: PluginId, policy: ReschedulingPolicy, view: ClusterView) -> Plan:
    try:
        with plugin_errors(plugin):
            plan = policy.plan(view)
            if problem := next(_wrong(plan), ""):
                raise wrong_result(plugin, f"returned {problem} from plan")
            return plan
    except RequestError:  # the log has it
        return Plan()


def _wrong(plan: object) -> Iterator[str]:
    """The reasons why ``plan`` is no plan."""
    if not isinstance(plan, Plan):
        yield f"{plan!r}, which is no Plan,"
        return
    yield from (f"{each!r}, which is no Migration," for each in plan.migrations if not isinstance(each, Migration))
    yield from (f"{each!r}, which is no DroppedPair," for each in plan.dropped if not isinstance(each, DroppedPair))


def _dropped(migration: Migration, why: str) -> DroppedPair:
    return DroppedPair(policy=migration.policy, source=migration.source, destination=migration.destination, why=why)
