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
    """Its configured size in bytes; ``None`` without one."""
    pin: bool = False
    """Whether it is never evicted."""
    priority: int = 0
    """The model's priority in the queue, added to the request's own; higher first."""
    concurrency: int = 0
    """The configured number of requests that it serves at once; 0 for the limit that its engine reports, if any."""


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
    """The measured bytes that each sleeping replica still holds. One that holds more than half of its bytes is not
    here, and counts as awake. Live: it changes while the gateway runs."""
    estimated: Mapping[str, int] = {}
    """An estimate of each replica's bytes, from its files. Live: it changes while the gateway runs."""
    reported: Mapping[str, int] = {}
    """The number of requests that each engine reports to serve at once. Live: it changes while the gateway runs."""
    elsewhere: frozenset[str] = frozenset()
    """The models of other hosts. All hosts have the same rules, so rules may name these models too."""


class SwapPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A swapper's decision with its reasons, as ``explain swap`` prints it."""

    target: str
    evict: list[str]
    set: list[str]
    """The replicas that run after the swap."""
    set_name: str | None = None
    """The name of the rule that decided, if it has one."""
    cost: int | None = None
    """The cost of the eviction, if the swapper has costs."""


class Swapper(ABC):
    """The eviction policy of one host.

    The gateway checks every answer. A name that is not among ``running``, and any exception other than a
    ``RequestError``, becomes ``plugin_failed`` (500). An eviction of a pinned replica becomes ``load_failed`` (503).
    """

    def prepare(self, host: HostFacts) -> None:
        """Called once, before anything else. Raise ``ConfigError`` for rules that do not fit the host.

        When the configuration changes, the gateway makes a new instance.
        """

    @abstractmethod
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """Return the replicas of ``running`` that must stop so that ``target`` can run.

        ``running`` has every replica that is neither stopped nor failed, and the target of every swap in flight, the
        least recently used first. Must be pure: schedulers also ask about swaps that never happen. Raise ``LoadFailed``
        if ``target`` can never run here.
        """

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """Return the replicas of ``running`` that may stop if ``target`` found too little memory to start beside them.

        By default all of them. Must be pure. The gateway never stops pinned replicas and those of the target's model.
        """
        return running

    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        """A swap starts. Called once for each swap."""

    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        """Return the decision of ``eviction_for`` with its reasons."""
        evict = list(self.eviction_for(target, running))
        stays = [replica for replica in running if replica not in evict and replica != target]
        return SwapPlan(target=target, evict=evict, set=[*stays, target])
