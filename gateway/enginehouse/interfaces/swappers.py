"""Swappers: what must go so that a model can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec


class HostedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that a host can run. ``memory``: bytes it was declared to take. ``pin``: never to be evicted.

    ``priority``: of its model in the queue, higher first. ``concurrency``: most requests at once, 0 for no limit.
    """

    replica: str
    model: str
    memory: int | None = None
    pin: bool = False
    priority: int = 0
    concurrency: int = 0


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A host as swappers and schedulers may know it.

    ``memory``: its budget in bytes, ``None`` for no limit. ``measured`` is live: bytes that replicas were seen to take.
    ``elsewhere``: models that run on other hosts, which rules for all hosts may name too.
    """

    name: str
    memory: int | None = None
    replicas: Mapping[str, HostedReplica] = {}
    measured: Mapping[str, int] = {}
    elsewhere: frozenset[str] = frozenset()


class SwapPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A swapper's decision taken apart, as ``explain swap`` prints it.

    ``set``: what runs afterwards. ``set_name`` and ``cost``: the rule chosen and its price, where there is one.
    """

    target: str
    evict: list[str]
    set: list[str]
    set_name: str | None = None
    cost: int | None = None


class Swapper(ABC):
    """An eviction policy for one host."""

    def prepare(self, host: HostFacts) -> None:
        """Get to know the host, once, before anything else. Raises ``ConfigError`` for rules that do not fit it.

        When the configuration changes, another instance takes over.
        """

    @abstractmethod
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The replicas of ``running`` that must stop so that ``target`` can run.

        ``running`` is every replica that is not stopped and every target of a swap in flight, the least recently used
        first. Pure: asked often, for swaps that may never happen, so it neither logs nor remembers. Raises
        ``LoadFailed`` for a target that can never run here.
        """

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The replicas of ``running`` that may be stopped if ``target`` found too little memory to start beside them.

        Pure, like ``eviction_for``. Pinned replicas, and those of the target's own model, stay in any case. Everything,
        unless a swapper knows better.
        """
        return running

    @abstractmethod
    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        """A swap really begins; called once for each."""

    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        """``eviction_for`` with its reasons."""
        evict = list(self.eviction_for(target, running))
        stays = [replica for replica in running if replica not in evict and replica != target]
        return SwapPlan(target=target, evict=evict, set=[*stays, target])
