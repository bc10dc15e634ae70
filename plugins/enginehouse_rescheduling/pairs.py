"""Pairs of a source and a destination, and how policies select them. Equal instances are in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from enginehouse.rescheduling import InstanceView


class Pair(NamedTuple):
    """Requests shall move from ``source`` to ``destination``."""

    source: InstanceView
    destination: InstanceView


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
