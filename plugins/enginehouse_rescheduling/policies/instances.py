"""Which instances fail, and how policies pair sources with destinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from enginehouse.rescheduling import RequestView
from enginehouse_kit.rescheduling import ClusterView, DroppedPair, InstanceView, Migration


def failed_domain(view: ClusterView, domain: str, staleness_s: float) -> set[str]:
    """The ids of all instances that are in the failure ``domain`` of one that fails, itself included.

    With data parallelism, the instances of a unit serve together or not at all.
    """
    failed = {each.id for each in view.instances if _is_failing(each, view.now_ms, staleness_s)}
    if domain in ("node", "node-unit"):
        nodes = {each.node for each in view.instances if each.id in failed and each.node}
        failed |= {each.id for each in view.instances if each.node in nodes}
    if domain in ("instance-unit", "node-unit") and any(each.data_parallel_size > 1 for each in view.instances):
        units = {each.unit for each in view.instances if each.id in failed and each.unit}
        failed |= {each.id for each in view.instances if each.unit in units}
    return failed


def _is_failing(instance: InstanceView, now_ms: int, staleness_s: float) -> bool:
    """Whether an instance takes no requests, or has not reported for long.

    As in Llumnix, the age counts in whole seconds, so that 60.9 s are not more than 60.
    """
    age_s = (now_ms - instance.status.timestamp_ms) // 1000
    return not instance.status.schedulable or age_s > staleness_s


class Pair(NamedTuple):
    """Requests shall move from ``source`` to ``destination``."""

    source: InstanceView
    destination: InstanceView

    def migration(
        self, policy: str, rule: str, order: str, value: float, requests: Sequence[RequestView] = ()
    ) -> Migration:
        """The order to move so many, or these ``requests``."""
        return Migration(
            policy=policy,
            source=self.source.id,
            destination=self.destination.id,
            rule=rule,
            order=order,
            value=value,
            requests=tuple(each.id for each in requests),
        )

    def dropped(self, policy: str, why: str) -> DroppedPair:
        """The note that nothing moves."""
        return DroppedPair(policy=policy, source=self.source.id, destination=self.destination.id, why=why)


Loads = Mapping[str, float]
"""The load of each instance by its id; less is less load."""


def balance(sources: Sequence[InstanceView], destinations: Sequence[InstanceView], loads: Loads) -> Iterator[Pair]:
    """Pair the highest load with the lowest one and so on, while the destination has less load than the source."""
    by_load = sorted(sources, key=lambda each: (-loads[each.id], each.id))
    idle = sorted(destinations, key=lambda each: (loads[each.id], each.id))
    for source, destination in zip(by_load, idle, strict=False):
        if not loads[destination.id] < loads[source.id]:
            return
        yield Pair(source, destination)


def round_robin(sources: Sequence[InstanceView], destinations: Sequence[InstanceView]) -> Iterator[Pair]:
    """Pair every source with the next destination."""
    targets = sorted(destinations, key=lambda each: each.id)
    for place, source in enumerate(sorted(sources, key=lambda each: each.id)):
        if targets and (destination := targets[place % len(targets)]).id != source.id:
            yield Pair(source, destination)


def highest(instances: Sequence[InstanceView], loads: Loads) -> InstanceView | None:
    """The instance with the highest load; ``None`` without any."""
    return min(instances, key=lambda each: (-loads[each.id], each.id), default=None)


def lowest(instances: Sequence[InstanceView], loads: Loads) -> InstanceView | None:
    """The instance with the lowest load; ``None`` without any."""
    return min(instances, key=lambda each: (loads[each.id], each.id), default=None)
