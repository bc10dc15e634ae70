"""``decode_load`` and ``neutral_load``: requests move from instances with much load to those with little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from enginehouse import Role
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.rescheduling import ClusterView, DroppedPair, InstanceView, Migration, Plan, ReschedulingPolicy
from enginehouse_rescheduling.latency import LatencyPredictor
from enginehouse_rescheduling.metrics import Circumstances, float32, metric
from enginehouse_rescheduling.policies.instances import Loads, Pair, balance, failed_domain


class LoadPolicy(ReschedulingPolicy):
    """Balances the instances of one role by a metric.

    An instance whose load reaches the threshold is a source, any other a destination. With ``load_balance_scope =
    "unit"`` or a threshold of 0, each instance can be both.
    """

    type: ClassVar[str]
    role: ClassVar[Role]

    def prepare(self, settings: ReschedulingSettings) -> None:
        self._settings = settings
        prefix = f"{self.role.value}_load"
        self._metric = metric(getattr(settings, f"{prefix}_metric"), f"rescheduling.{prefix}_metric")
        sign = -1 if self._metric.larger_is_better else 1
        self._threshold = sign * float32(getattr(settings, f"{prefix}_threshold"))
        self._has_threshold = self._threshold != 0 and settings.load_balance_scope != "unit"
        self._latency = LatencyPredictor.of(settings) if self._metric.is_predicted else None

    def plan(self, view: ClusterView) -> Plan:
        failed = failed_domain(view, self._settings.failover_domain, self._settings.instance_staleness)
        instances = [each for each in view.instances if each.role is self.role and each.id not in failed]
        circumstances = Circumstances(view.now_ms, self._latency)
        loads = {each.id: self._metric.load(each, circumstances) for each in instances}
        pairs = [pair for scope in self._scopes(instances) for pair in self._balanced(scope, loads)]
        uneven = [pair for pair in pairs if self._is_worth_it(pair, loads)]
        return Plan(
            migrations=tuple(map(self._migration, uneven)),
            dropped=tuple(self._dropped(pair, loads) for pair in pairs if pair not in uneven),
        )

    def _scopes(self, instances: Sequence[InstanceView]) -> Iterator[Sequence[InstanceView]]:
        """The groups of instances among which requests move. An instance without a unit is in none of them."""
        if self._settings.load_balance_scope == "cluster":
            yield instances
            return
        units: dict[str, list[InstanceView]] = {}
        for each in instances:
            units.setdefault(each.unit, []).append(each)
        yield from (units[unit] for unit in sorted(units) if unit)

    def _balanced(self, instances: Sequence[InstanceView], loads: Loads) -> Iterator[Pair]:
        if not self._has_threshold:
            return balance(instances, instances, loads)
        sources = [each for each in instances if loads[each.id] >= self._threshold]
        destinations = [each for each in instances if loads[each.id] < self._threshold]
        return balance(sources, destinations, loads)

    def _is_worth_it(self, pair: Pair, loads: Loads) -> bool:
        least = float32(self._settings.load_balance_threshold)
        return least <= 0 or _difference(pair, loads) >= least

    def _migration(self, pair: Pair) -> Migration:
        settings = self._settings
        return pair.migration(self.type, settings.req_select_rule, settings.req_select_order, settings.req_select_value)

    def _dropped(self, pair: Pair, loads: Loads) -> DroppedPair:
        why = f"their loads differ by {_difference(pair, loads):.3g}, less than load_balance_threshold"
        return pair.dropped(self.type, f"{why} ({self._settings.load_balance_threshold:g})")


class DecodeLoad(LoadPolicy):
    """Balances the load of decode instances."""

    type = "decode_load"
    role = Role.DECODE


class NeutralLoad(LoadPolicy):
    """Balances the load of neutral instances."""

    type = "neutral_load"
    role = Role.NEUTRAL


def _difference(pair: Pair, loads: Loads) -> float:
    return float32(loads[pair.source.id] - loads[pair.destination.id])
