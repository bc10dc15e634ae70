"""A change of one host's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from enginehouse.config.managed import driver_of
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.managed_replica import ManagedReplica
from enginehouse.interfaces.swappers import HostFacts
from enginehouse.scheduling.facts import SchedulingRules
from enginehouse.scheduling.guarded_swapper import GuardedSwapper


class HostChange(NamedTuple):
    """A prepared change of one host to the configuration of ``context``.

    ``swapper``: already prepared for ``facts``; ``None`` if the rules of scheduling do not change.
    """

    context: HostContext
    managed: Mapping[str, ManagedReplica]
    rules: SchedulingRules
    facts: HostFacts
    swapper: GuardedSwapper | None


def probed_alike(one: ManagedReplica | None, other: ManagedReplica) -> bool:
    """Whether the probes of a replica stay the same when its settings change from ``one`` to ``other``."""
    if one is None:
        return True
    return (driver_of(one.model), one.model.health_path) == (driver_of(other.model), other.model.health_path)
