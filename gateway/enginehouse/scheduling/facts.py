"""What the configuration says of hosts and of how models change places on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from enginehouse.config.managed import managed_backends
from enginehouse.config.rules import LOCAL_HOST
from enginehouse.config.schema import Config, Host
from enginehouse.domain.replica import replica_name
from enginehouse.interfaces.schedulers import SchedulingLimits
from enginehouse.interfaces.swappers import HostedReplica, HostFacts


class HostRules(NamedTuple):
    """All that the configuration says of how a host is scheduled. ``swapper``: its type and parameters, as text."""

    facts: HostFacts
    limits: SchedulingLimits
    swapper: str


def host_names(config: Config) -> Sequence[str]:
    """Every host."""
    return list(dict.fromkeys([LOCAL_HOST, *config.hosts]))


def host_facts(config: Config, host: str) -> HostFacts:
    """``host`` as swappers and schedulers may know it, before anything is measured."""
    return HostFacts(
        name=host,
        memory=config.hosts.get(host, Host()).memory,
        replicas={hosted.replica: hosted for hosted in _replicas(config, host)},
        elsewhere=frozenset(name for name, model in config.models.items() if model.launches and model.host != host),
    )


def host_rules(config: Config, host: str) -> HostRules:
    """How ``host`` is scheduled, before anything is measured."""
    scheduling = config.scheduling
    limits = SchedulingLimits(
        queue_timeout=scheduling.queue_timeout,
        max_queue=scheduling.max_queue,
        min_residency=scheduling.min_residency,
        max_wait=scheduling.max_wait,
        max_loads=config.hosts.get(host, Host()).max_loads,
    )
    swapper = repr((scheduling.swapper, swapper_parameters(config)))  # as text, for the order of sets counts
    return HostRules(host_facts(config, host), limits, swapper)


def swapper_parameters(config: Config) -> Mapping[str, Any]:
    """The parameters of the configured swapper, from the tables of ``[scheduling]`` that are for it."""
    scheduling = config.scheduling
    parameters = config.plugins.parameters.get(scheduling.swapper, {})
    if scheduling.swapper == "group":
        return {**parameters, "groups": msgspec.to_builtins(scheduling.groups)}
    if scheduling.swapper == "matrix":
        return {**parameters, **msgspec.to_builtins(scheduling.matrix)}
    return parameters


def _replicas(config: Config, host: str) -> Iterator[HostedReplica]:
    for name, model in config.models.items():
        if model.host == host:
            for backend in managed_backends(name, model):
                yield HostedReplica(
                    replica=replica_name(name, backend),
                    model=name,
                    memory=model.memory,
                    pin=model.pin,
                    priority=config.scheduling.priorities.get(name, 0),
                    concurrency=model.concurrency,
                )
