"""``binpacking_mitigation`` and ``binpacking_consolidation``: adaptive disaggregation of prefill and decode.

Both look at the predicted time per output token, whatever the roles of the instances, and move one request at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from enginehouse import Role
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.rescheduling import ClusterView, InstanceView, Plan, ReschedulingPolicy
from enginehouse_rescheduling.latency import LatencyPredictor
from enginehouse_rescheduling.metrics import Circumstances, decode_batch_size, float32, predicted_tpot
from enginehouse_rescheduling.policies.instances import Loads, Pair, failed_domain, first_pair, least_first, most_first


class BinpackingPolicy(ReschedulingPolicy):
    """The common part of both: thresholds in milliseconds, and candidates with their predicted times."""

    type: ClassVar[str]

    def prepare(self, settings: ReschedulingSettings) -> None:
        self._settings = settings
        self._latency = LatencyPredictor.of(settings)
        self._ceiling = _share(settings, settings.tpot_migrate_out_ceil_threshold)
        self._limit = _share(settings, settings.tpot_slo_dispatch_threshold)
        self._floor = _share(settings, settings.tpot_migrate_out_floor_threshold)

    def plan(self, view: ClusterView) -> Plan:
        failed = failed_domain(view, self._settings.failover_domain, self._settings.instance_staleness)
        circumstances = Circumstances(view.now_ms, self._latency)
        instances = [each for each in view.instances if each.reserved is not Role.PREFILL and each.id not in failed]
        times = {each.id: float32(predicted_tpot(each, circumstances)) for each in instances}
        pair = self._pair(instances, times, circumstances)
        return Plan(migrations=(pair.migration(self.type, "NUM_REQ", "LCR", 1),)) if pair is not None else Plan()

    @abstractmethod
    def _pair(self, instances: Sequence[InstanceView], times: Loads, circumstances: Circumstances) -> Pair | None:
        """The instances to move between, if any."""


class BinpackingMitigation(BinpackingPolicy):
    """Moves from the slowest instance above the ceiling to the fullest one that still takes requests."""

    type = "binpacking_mitigation"

    def _pair(self, instances: Sequence[InstanceView], times: Loads, circumstances: Circumstances) -> Pair | None:
        sources = most_first((each for each in instances if times[each.id] >= self._ceiling), times)
        destinations = most_first((each for each in instances if times[each.id] < self._limit), times)
        return first_pair(
            Pair(source, destination) for source in sources for destination in destinations if destination is not source
        )


class BinpackingConsolidation(BinpackingPolicy):
    """Moves from the emptiest instance below the floor to the fullest one, or to that reserved for decode."""

    type = "binpacking_consolidation"

    def _pair(self, instances: Sequence[InstanceView], times: Loads, circumstances: Circumstances) -> Pair | None:
        decoding = [each for each in instances if decode_batch_size(each, circumstances) > 0]
        destinations = most_first((each for each in decoding if times[each.id] < self._limit), times)
        destinations.sort(key=lambda each: each.reserved is not Role.DECODE)
        sources = least_first((each for each in decoding if times[each.id] < self._floor), times)
        return first_pair(
            Pair(source, destination)
            for destination in destinations
            for source in sources
            if source is not destination and source.reserved is not Role.DECODE
        )


def _share(settings: ReschedulingSettings, share: float) -> float:
    """A share of the target time per output token, in milliseconds and in single precision."""
    return float32(float32(settings.tpot_slo * 1000) * float32(share))
