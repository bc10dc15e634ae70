"""Hosts and installed swappers for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginehouse import Swapper
from enginehouse.tickets import HostedReplica, HostFacts
from tests.support.installed_plugins import installed_plugins

GIB = 1024**3


def host_of(
    *models: str,
    memory: float | None = None,
    sizes: Mapping[str, float] | None = None,
    pinned: tuple[str, ...] = (),
    twins: Mapping[str, str] | None = None,
    measured: Mapping[str, int] | None = None,
    asleep: Mapping[str, int] | None = None,
    estimated: Mapping[str, float] | None = None,
    elsewhere: frozenset[str] = frozenset(),
) -> HostFacts:
    """A host with one replica of each model, called like the model, and ``twins``: more replicas with their models.

    ``memory``, ``sizes`` and ``estimated`` are in GiB, ``measured`` and ``asleep`` in bytes.
    """
    sizes = sizes or {}
    model_of = {model: model for model in models} | dict(twins or {})
    replicas = {
        replica: HostedReplica(
            replica=replica,
            model=model,
            memory=int(sizes[replica] * GIB) if replica in sizes else None,
            pin=replica in pinned,
        )
        for replica, model in model_of.items()
    }
    budget = None if memory is None else int(memory * GIB)
    measured = {} if measured is None else measured
    likely = {replica: int(size * GIB) for replica, size in (estimated or {}).items()}
    return HostFacts(
        name="local",
        memory=budget,
        replicas=replicas,
        measured=measured,
        asleep={} if asleep is None else asleep,
        estimated=likely,
        elsewhere=elsewhere,
    )


def installed_swapper(type: str, host: HostFacts, **parameters: Any) -> Swapper:
    """A swapper of an installed plugin, prepared for ``host``."""
    made: Swapper = installed_plugins().create("swapper", type, parameters)
    made.prepare(host)
    return made
