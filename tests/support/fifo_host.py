"""Hosts with a ``Fifo`` and without engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from enginehouse import Swapper
from enginehouse.errors import LoadFailed
from enginehouse.tickets import HostedReplica, Ticket
from enginehouse_kit.testing import FakeEffects
from enginehouse_scheduling.fifo import Fifo


class ByRule(Swapper):
    """Evicts the running replicas that ``rule`` has for a target. ``None``: the target can never be loaded."""

    def __init__(self, rule: Mapping[str, str | None]) -> None:
        self.rule = rule

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        evict = self.rule.get(target, "")
        if evict is None:
            raise LoadFailed(f"'{target}' is too large")
        return [replica for replica in running if replica in evict]


def fifo_host(
    replicas: Iterable[str | HostedReplica] = "abcd",
    *,
    rule: Mapping[str, str | None] | None = None,
    ready: Iterable[str] = (),
    swapper: Swapper | None = None,
    **limits: Any,
) -> FakeEffects:
    """A host with a ``Fifo``. Without ``rule`` and ``swapper`` one replica runs at a time. No limits by default."""
    limits = {"max_loads": 0, "max_wait": 0.0, "queue_timeout": 0.0, **limits}
    by_rule = swapper if rule is None else ByRule(rule)
    return FakeEffects(Fifo(), replicas, ready=ready, swapper=by_rule, **limits)


def waiting_tickets(host: FakeEffects) -> list[Ticket]:
    """The tickets that wait, the next one first."""
    return [each.ticket for each in host.scheduler.waiting()]
