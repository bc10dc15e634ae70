"""The memory of a host, and what its engines take of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

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


def host_memory(facts: HostFacts, running: Collection[str]) -> HostMemory:
    """The memory of the host with these ``facts``, whose replicas ``running`` are neither stopped nor failed."""
    declared = {name: each.memory for name, each in facts.replicas.items() if each.memory is not None}
    known = {**facts.estimated, **facts.measured, **declared}
    sizes = {name: known[name] for name in facts.replicas if name in known}
    held = {**sizes, **facts.asleep}
    used = sum(held.get(name, 0) for name in running)
    return HostMemory(host=facts.name, budget=facts.memory, used=used, replicas=sizes)
