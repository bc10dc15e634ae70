"""The memory of a host, as operators see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from enginehouse.domain.replica import ReplicaState
from enginehouse.interfaces.swappers import HostFacts


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that the engines of a host may take, and take."""

    host: str
    budget: int | None
    """``None`` without a limit."""
    used: int
    """By the engines that run, as far as their sizes are known."""
    replicas: Mapping[str, int]
    """Of each replica: declared, else measured, else estimated from its files. Unknown ones are left out."""


def host_memory(facts: HostFacts, running: Mapping[str, ReplicaState]) -> HostMemory:
    """The memory of the host with these ``facts``, whose replicas ``running`` are neither stopped nor failed."""
    sizes = {name: size for name in facts.replicas if (size := _size(facts, name)) is not None}
    return HostMemory(host=facts.name, budget=facts.memory, used=_used(facts, sizes, running), replicas=sizes)


def _size(facts: HostFacts, replica: str) -> int | None:
    for size in (facts.replicas[replica].memory, facts.measured.get(replica), facts.estimated.get(replica)):
        if size is not None:
            return size
    return None


def _used(facts: HostFacts, sizes: Mapping[str, int], running: Mapping[str, ReplicaState]) -> int:
    asleep: Collection[str] = [name for name, state in running.items() if state is ReplicaState.SLEEPING]
    return sum((facts.asleep if name in asleep else sizes).get(name, 0) for name in running)
