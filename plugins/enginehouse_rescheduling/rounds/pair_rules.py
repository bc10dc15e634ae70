"""The rules that every planned pair must keep, whichever policy planned it."""

from __future__ import annotations

from collections import Counter

import msgspec

from enginehouse.rescheduling import ClusterView, InstanceView, Migration
from enginehouse_rescheduling.rounds.recent_moves import RecentMoves


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
