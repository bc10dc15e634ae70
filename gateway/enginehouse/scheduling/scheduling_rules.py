"""The configuration of hosts and of swaps, as schedulers and swappers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.config.parameters import plugin_table
from enginehouse.config.rules import LOCAL_HOST
from enginehouse.config.schema import Config, ModelSettings
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import ConfigError, RequestError
from enginehouse.domain.replica import replica_name
from enginehouse.interfaces.schedulers import SchedulingLimits
from enginehouse.interfaces.swappers import HostedReplica, HostFacts, Swapper


def host_names(config: Config) -> Sequence[str]:
    """Every host."""
    return list(dict.fromkeys([LOCAL_HOST, *config.hosts]))


def facts_of_hosts(config: Config) -> Callable[[str], HostFacts]:
    """Any host of ``config`` as schedulers and swappers see it, without measurements.

    Models are looked at once for all of them.
    """
    replicas: dict[str, dict[str, HostedReplica]] = {}
    for name, model in config.models.items():
        for backend, place in model.backends(name).items():
            hosted = hosted_replica(config, name, backend, model)
            replicas.setdefault(place, {})[hosted.replica] = hosted
    # those of a server that loads models itself may be on any host
    served = {name for backend in config.backends.values() for name in backend.models or ()}

    def facts(host: str) -> HostFacts:
        here = replicas.get(host, {})
        elsewhere = config.models.keys() - {each.model for each in here.values()}
        memory = config.host_settings(host).memory
        return HostFacts(name=host, memory=memory, replicas=here, elsewhere=frozenset(elsewhere | served))

    return facts


def host_limits(config: Config, host: str) -> SchedulingLimits:
    """The limits of ``host``."""
    return msgspec.structs.replace(scheduling_limits(config), max_loads=config.host_settings(host).max_loads)


def scheduling_limits(config: Config) -> SchedulingLimits:
    """The limits that all hosts share."""
    limits = msgspec.convert(config.scheduling, SchedulingLimits, from_attributes=True)
    return msgspec.structs.replace(limits, shed_after=config.routing.shed_after)


def swapper_parameters(config: Config) -> Mapping[str, Any]:
    """The parameters of the configured swapper: its table in ``[scheduling]`` and its ``[plugins]`` parameters."""
    scheduling = config.scheduling
    parameters = plugin_table(config.plugins, "swapper", scheduling.swapper).parameters
    if scheduling.swapper == "group":
        return {**parameters, "groups": msgspec.to_builtins(scheduling.groups)}
    if scheduling.swapper == "matrix":
        return {**parameters, **msgspec.to_builtins(scheduling.matrix)}
    return parameters


def swapper_text(config: Config) -> str:
    """The type and the parameters of the configured swapper, as text, because the order of sets counts."""
    return repr((config.scheduling.swapper, swapper_parameters(config)))


def hosted_replica(config: Config, name: str, backend: str, model: ModelSettings) -> HostedReplica:
    """The replica of the model ``name`` on ``backend``, as schedulers and swappers see it."""
    server = config.backends.get(backend)
    return HostedReplica(
        replica=replica_name(name, backend),
        model=name,
        memory=model.memory,
        pin=model.pin,
        priority=config.scheduling.priorities.get(name, 0),
        concurrency=model.concurrency or (0 if server is None else server.concurrency),
    )


def check_preloads(config: Config, host: HostFacts, swapper: Swapper) -> None:
    """Raise ``ConfigError`` if preloading the models of ``host``, in their order, stops one that is preloaded too."""
    loaded: list[str] = []
    for replica, hosted in host.replicas.items():
        if config.models[hosted.model].preload:
            if problem := _preload_problem(replica, loaded, host, swapper):
                raise ConfigError(
                    problem,
                    key=dotted(("models", hosted.model, "preload")),
                    remedy="preload only one of them, or let both run together by the rules of [scheduling]",
                )
            loaded.append(replica)


def _preload_problem(replica: str, loaded: Sequence[str], host: HostFacts, swapper: Swapper) -> str:
    try:
        evicted = swapper.eviction_for(replica, loaded)
    except RequestError as error:
        return f"it cannot be loaded beside {_model_names(loaded, host)}: {error}" if loaded else ""
    return f"loading it stops {_model_names(evicted, host)}, preloaded too" if evicted else ""


def _model_names(replicas: Sequence[str], host: HostFacts) -> str:
    return ", ".join(f"'{model}'" for model in dict.fromkeys(host.replicas[each].model for each in replicas))
