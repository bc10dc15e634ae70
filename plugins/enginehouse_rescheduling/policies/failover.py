"""``prefill_failover``, ``decode_failover``, ``neutral_failover``: requests leave instances that fail."""

from __future__ import annotations

from typing import ClassVar

from enginehouse import Role
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.rescheduling import ClusterView, Migration, Plan, ReschedulingPolicy
from enginehouse_rescheduling.policies.instances import failed_domain, round_robin


class FailoverPolicy(ReschedulingPolicy):
    """Moves all requests from each failed instance of a role, and from its failure domain, to one outside of it."""

    type: ClassVar[str]
    role: ClassVar[Role]

    def prepare(self, settings: ReschedulingSettings) -> None:
        self._settings = settings

    def plan(self, view: ClusterView) -> Plan:
        failed = failed_domain(view, self._settings.failover_domain, self._settings.instance_staleness)
        instances = [each for each in view.instances if each.role is self.role]
        sources = [each for each in instances if each.id in failed]
        destinations = [each for each in instances if each.id not in failed]
        pairs = round_robin(sources, destinations)
        return Plan(
            migrations=tuple(each.migration(self.type, "NUM_REQ", "LR", Migration.EVERYTHING) for each in pairs)
        )


class PrefillFailover(FailoverPolicy):
    """Moves all requests away from prefill instances that fail."""

    type = "prefill_failover"
    role = Role.PREFILL


class DecodeFailover(FailoverPolicy):
    """Moves all requests away from decode instances that fail."""

    type = "decode_failover"
    role = Role.DECODE


class NeutralFailover(FailoverPolicy):
    """Moves all requests away from neutral instances that fail."""

    type = "neutral_failover"
    role = Role.NEUTRAL
