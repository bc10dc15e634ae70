"""Runs all policies on one view, and drops pairs that must not be carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import isfinite

import msgspec

from enginehouse import RequestError
from enginehouse.errors import CannotContinue
from enginehouse.rescheduling import RequestView, ReschedulingSettings
from enginehouse.runtime import PluginId, plugin_errors, wrong_result
from enginehouse.services import Configured
from enginehouse_kit.rescheduling import (
    ClusterView,
    DroppedPair,
    InstanceView,
    Migrated,
    Migration,
    Plan,
    ReschedulingPolicy,
)

_ADAPTIVE_PD = ("binpacking_consolidation", "binpacking_mitigation")
_MOST_MOVES = 10
_WITHIN_S = 60.0
_STAYS = f"it has moved {_MOST_MOVES} times within a minute"


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
            return plan if plugin.trusted and isinstance(plan, Plan) else _checked(plugin, plan)
    except RequestError:  # the log has it
        return Plan()


def _checked(plugin: PluginId, plan: object) -> Plan:
    """The same plan, all of whose fields have their types. Raises ``PluginFailed`` for anything else."""
    if not isinstance(plan, Plan):
        raise wrong_result(plugin, f"returned {plan!r}, which is no Plan, from plan")
    try:
        checked = msgspec.convert(msgspec.to_builtins(plan), Plan)
    except (msgspec.ValidationError, TypeError) as error:
        raise wrong_result(plugin, f"returned a wrong Plan from plan: {error}") from None
    if not all(isfinite(each.value) for each in checked.migrations):
        raise wrong_result(plugin, "returned a Migration of no finite value from plan")
    return checked


def _dropped(migration: Migration, why: str) -> DroppedPair:
    return DroppedPair(policy=migration.policy, source=migration.source, destination=migration.destination, why=why)


class PairRules:
    """Checks the pairs of one plan, one after the other. An accepted pair counts for those after it.

    As in Llumnix, only the exact reverse of an accepted pair contradicts it. The other rules are ours.
    """

    def __init__(self, view: ClusterView, recent: RecentMoves) -> None:
        self._now_ms = view.now_ms
        self._instances = {each.id: each for each in view.instances}
        self._recent = recent
        self._pairs: dict[tuple[str, str], str] = {}
        self._requests: set[str] = set()
        self._arriving: Counter[str] = Counter()
        self._arriving_tokens: Counter[str] = Counter()

    def check(self, migration: Migration) -> tuple[Migration | None, str]:
        """The migration in its permitted form, or ``None`` with the reason why it is dropped."""
        source = self._instances.get(migration.source)
        destination = self._instances.get(migration.destination)
        if source is None or destination is None:
            return None, "the view does not have both instances"
        if why := self._pair(migration, source, destination) or self._room(migration, destination):
            return None, why
        if migration.requests:
            left, why = self._left(migration)
            if not left:
                return None, why
            migration = msgspec.structs.replace(migration, requests=left, value=len(left))
        self._accept(migration)
        return migration, ""

    def _pair(self, migration: Migration, source: InstanceView, destination: InstanceView) -> str:
        """Why the two instances are no pair."""
        pair = (source.id, destination.id)
        if source.id == destination.id:
            return "both are the same instance"
        if earlier := self._pairs.get((destination.id, source.id)):
            return f"{earlier} moves the other way"
        if pair in self._pairs and not migration.requests:
            return f"{self._pairs[pair]} moves the same way"
        if source.zone != destination.zone:
            return "they are in different zones"
        if not source.shares_model(destination):
            return "they share no model"
        if not migration.moves_everything:
            for each in pair:
                if self._recent.rests(each, self._now_ms):
                    return f"{each} rests after a migration (cool_down)"
        return ""

    def _room(self, migration: Migration, destination: InstanceView) -> str:
        """Why the destination takes no more. An engine without migrations of its own reports no limits."""
        status, name = destination.status, destination.id
        slots = status.num_available_migrate_in_slots
        if slots + status.num_migrate_in_reqs > 0 and self._arriving[name] >= slots:
            return f"{name} takes no more migrations at once ({slots} available)"
        tokens = status.num_available_migrate_in_tokens
        needed = self._arriving_tokens[name] + _tokens(migration)
        if tokens + status.num_migrate_in_tokens > 0 and needed > tokens:
            return f"{name} takes no more tokens of migrations at once ({tokens} available)"
        return ""

    def _left(self, migration: Migration) -> tuple[tuple[str, ...], str]:
        """The named requests that no earlier pair moves and that do not return, or why there are none."""
        fresh = [each for each in migration.requests if each not in self._requests]
        if not fresh:
            return (), "earlier pairs move all of its requests"
        left = tuple(each for each in fresh if not self._recent.returns(each, migration.destination, self._now_ms))
        return left, "its requests have just left the destination"

    def _accept(self, migration: Migration) -> None:
        self._pairs.setdefault((migration.source, migration.destination), migration.policy)
        self._requests.update(migration.requests)
        self._arriving[migration.destination] += 1
        self._arriving_tokens[migration.destination] += _tokens(migration)


def _tokens(migration: Migration) -> int:
    return int(migration.value) if migration.rule == "TOKEN" else 0


class RecentMoves:
    """The moves of the last ``cool_down`` seconds. Times are in milliseconds."""

    def __init__(self, cool_down: float) -> None:
        self._cool_down_ms = cool_down * 1000
        self._instances: dict[str, int] = {}
        self._left: dict[str, tuple[str, int]] = {}

    def note(self, migration: Migration, migrated: Migrated, now_ms: int) -> None:
        """Remember a migration that ended at ``now_ms``. One that moved nothing begins no pause."""
        if not migrated.moved or not self._cool_down_ms:
            return
        self._forget(now_ms)
        self._instances[migration.source] = self._instances[migration.destination] = now_ms
        for request in migrated.moved:
            self._left[request] = (migration.source, now_ms)

    def rests(self, instance: str, now_ms: int) -> bool:
        """Whether the instance sent or received requests in the last ``cool_down`` seconds."""
        return self._is_recent(self._instances.get(instance), now_ms)

    def returns(self, request: str, destination: str, now_ms: int) -> bool:
        """Whether the request has just left ``destination``."""
        source, when = self._left.get(request, ("", None))
        return source == destination and self._is_recent(when, now_ms)

    def _is_recent(self, when: int | None, now_ms: int) -> bool:
        return when is not None and now_ms - when < self._cool_down_ms

    def _forget(self, now_ms: int) -> None:
        self._instances = {name: when for name, when in self._instances.items() if self._is_recent(when, now_ms)}
        self._left = {name: left for name, left in self._left.items() if self._is_recent(left[1], now_ms)}


class MoveLimit:
    """Lets a stream move ``_MOST_MOVES`` times within ``_WITHIN_S``: each move costs its client a gap.

    ``now``: a clock in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._moves: dict[str, list[float]] = {}
        self._forgets_at = 0.0

    def note(self, request: str) -> None:
        """Note that a stream has moved."""
        now = self._now()
        if now >= self._forgets_at:
            self._forgets_at = now + _WITHIN_S
            self._moves = {name: times for name, times in self._moves.items() if times[-1] > now - _WITHIN_S}
        self._moves[request] = [*self._moves.get(request, [])[1 - _MOST_MOVES :], now]

    def seen(self, request: RequestView) -> RequestView:
        """``request``, which stays if it has moved often enough."""
        if request.stays is None and self._is_reached(request.id):
            return msgspec.structs.replace(request, stays=_STAYS)
        return request

    def check(self, request: str) -> None:
        """Raise ``CannotContinue`` if ``request``, which a policy names, has moved often enough."""
        if self._is_reached(request):
            raise CannotContinue(f"The request stays where it is: {_STAYS}")

    def _is_reached(self, request: str) -> bool:
        times = self._moves.get(request, [])
        return len(times) >= _MOST_MOVES and times[0] > self._now() - _WITHIN_S
