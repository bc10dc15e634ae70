"""Instances that fail, and the instances that fail with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from enginehouse.rescheduling import ClusterView, InstanceView

Domain = Callable[[ClusterView, Collection[str]], set[str]]


def is_failing(instance: InstanceView, now_ms: int, staleness_s: float) -> bool:
    """Whether an instance takes no requests, or has not reported for long.

    As in Llumnix, the age counts in whole seconds, so that 60.9 s are not more than 60.
    """
    age_s = (now_ms - instance.status.timestamp_ms) // 1000
    return not instance.status.schedulable or age_s > staleness_s


def failing_instances(view: ClusterView, staleness_s: float) -> set[str]:
    """The ids of all instances that fail themselves."""
    return {each.id for each in view.instances if is_failing(each, view.now_ms, staleness_s)}


def failed_domain(view: ClusterView, domain: str, staleness_s: float) -> set[str]:
    """The ids of all instances that are in the failure domain of one that fails, itself included."""
    failing = failing_instances(view, staleness_s)
    return _DOMAINS[domain](view, failing) if failing else failing


def _instance(view: ClusterView, failing: Collection[str]) -> set[str]:
    return set(failing)


def _node(view: ClusterView, failing: Collection[str]) -> set[str]:
    nodes = {each.node for each in view.instances if each.id in failing and each.node}
    return set(failing) | {each.id for each in view.instances if each.node in nodes}


def _instance_unit(view: ClusterView, failing: Collection[str]) -> set[str]:
    return _with_units(view, failing)


def _node_unit(view: ClusterView, failing: Collection[str]) -> set[str]:
    return _with_units(view, _node(view, failing))


def _with_units(view: ClusterView, failed: Collection[str]) -> set[str]:
    """``failed`` and, with data parallelism, all instances of their units: these serve together or not at all."""
    if not any(each.data_parallel_size > 1 for each in view.instances):
        return set(failed)
    units = {each.unit for each in view.instances if each.id in failed and each.unit}
    return set(failed) | {each.id for each in view.instances if each.unit in units}


_DOMAINS: Mapping[str, Domain] = {
    "instance": _instance,
    "node": _node,
    "instance-unit": _instance_unit,
    "node-unit": _node_unit,
}
