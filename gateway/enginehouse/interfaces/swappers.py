"""Swappers: decide which replicas stop so that another can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec


class HostedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that a host can run."""

    replica: str
    model: str
    memory: int | None = None
    """The configured bytes that it takes; ``None`` if they are not configured."""
    pin: bool = False
    """Whether it is never evicted."""
    priority: int = 0
    """The model's priority in the queue, added to the request's own; higher first."""
    concurrency: int = 0
    """How many requests it serves at once by its configuration; 0 for the limit that its engine reports, if any."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A host, as its scheduler and its swapper see it."""

    name: str
    memory: int | None = None
    """The budget in bytes, ``None`` for no limit."""
    replicas: Mapping[str, HostedReplica] = {}
    """Every replica of the host, by name."""
    measured: Mapping[str, int] = {}
    """The most bytes measured for each replica. Live: it changes while the gateway runs."""
    asleep: Mapping[str, int] = {}
    """The bytes that each sleeping replica has kept, as measured. Live: it changes while the gateway runs."""
    estimated: Mapping[str, int] = {}
    """The bytes that each replica will probably take, by its files. Live: it changes while the gateway runs."""
    reported: Mapping[str, int] = {}
    """How many requests each engine says that it serves at once. Live: it changes while the gateway runs."""
    elsewhere: frozenset[str] = frozenset()
    """The models of other hosts. Rules are the same for all hosts, so they may name these too."""


class SwapPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A swapper's decision with its reasons, as ``explain swap`` prints it."""

    target: str
    evict: list[str]
    set: list[str]
    """The replicas that run after the swap."""
    set_name: str | None = None
    """The name of the rule that decided, if it has one."""
    cost: int | None = None
    """The price of the eviction, if the swapper has prices."""


class Swapper(ABC):
    """The eviction policy of one host.

    The gateway checks every answer. An exception but a ``RequestError``, and a name that is not among ``running``,
    become ``plugin_failed`` (500); an eviction of a pinned replica becomes ``load_failed`` (503).
    """

    def prepare(self, host: HostFacts) -> None:
        """Called once, before anything else. Raises ``ConfigError`` for rules that do not fit the host.

        A change of the configuration makes a new instance.
        """

    @abstractmethod
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The replicas of ``running`` that must stop so that ``target`` can run.

        ``running`` has every replica that is not at rest and the target of every swap in flight, the least recently
        used first. Must be pure: schedulers also ask about swaps that never happen. Raises ``LoadFailed`` if ``target``
        can never run here.
        """

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The replicas of ``running`` that may stop if ``target`` found too little memory to start beside them.

        By default all of them. Must be pure. The gateway takes out pinned replicas and those of the target's model.
        """
        return running

    @abstractmethod
    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        """A swap starts. Called once for each."""

    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        """The decision of ``eviction_for`` with its reasons."""
        evict = list(self.eviction_for(target, running))
        stays = [replica for replica in running if replica not in evict and replica != target]
        return SwapPlan(target=target, evict=evict, set=[*stays, target])
