"""Which instances fail, and how policies pair sources with destinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    @property
    def suits(self) -> bool:
        """Whether requests can move between the two: they serve a common model, in the same zone."""
        source, destination = self
        return source.zone == destination.zone and source.shares_model(destination)

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
    """Pair the highest load with the lowest one that suits it and so on, while the destination has less load."""
    idle = least_first(destinations, loads)
    for source in most_first(sources, loads):
        pair = first_pair(Pair(source, each) for each in idle)
        if pair is not None and loads[pair.destination.id] < loads[source.id]:
            if pair.suits:
                idle.remove(pair.destination)
            yield pair


def round_robin(sources: Sequence[InstanceView], destinations: Sequence[InstanceView]) -> Iterator[Pair]:
    """Pair every source with the next destination that suits it."""
    given: Counter[str] = Counter()
    for source in sorted(sources, key=lambda each: each.id):
        targets = sorted(destinations, key=lambda each: (given[each.id], each.id))
        pair = first_pair(Pair(source, each) for each in targets)
        if pair is not None:
            given[pair.destination.id] += 1
            yield pair


def first_pair(pairs: Iterable[Pair]) -> Pair | None:
    """The first pair that suits. If none does, the first one: the planner drops it, and says why."""
    first: Pair | None = None
    for pair in pairs:
        if pair.suits:
            return pair
        first = first or pair
    return first


def most_first(instances: Iterable[InstanceView], loads: Loads) -> list[InstanceView]:
    """The instances, the one with the highest load first."""
    return sorted(instances, key=lambda each: (-loads[each.id], each.id))


def least_first(instances: Iterable[InstanceView], loads: Loads) -> list[InstanceView]:
    """The instances, the one with the lowest load first."""
    return sorted(instances, key=lambda each: (loads[each.id], each.id))
