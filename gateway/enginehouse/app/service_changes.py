"""What services change of a configuration: backends that they found, and how many replicas of models they want."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import NamedTuple

import msgspec
from msgspec.inspect import Type, type_info
from msgspec.structs import replace

from enginehouse.app.needs import unmet_by
from enginehouse.config.decode import Decoder
from enginehouse.config.rules import LOCAL_HOST, url_problem
from enginehouse.config.schema import BackendSettings, Config, HostSettings, ReplicaRange, SizedRange
from enginehouse.config.secrets import Secret
from enginehouse.config.shape import dotted
from enginehouse.interfaces.services import FoundBackend
from enginehouse.plugin_manager.registry import Registry


class Offer(NamedTuple):
    """A found backend as the configuration has it."""

    found: FoundBackend
    settings: BackendSettings


class Joined(NamedTuple):
    """A configuration with found backends, of which ``offers`` and ``hosts`` are those that it did not have.

    ``refused``: the backends that the configuration cannot have, and why.
    """

    config: Config
    offers: Mapping[str, Offer] = {}
    refused: Mapping[str, str] = {}
    hosts: Collection[str] = ()

    def without_found(self, config: Config) -> Config:
        """``config``, which was made of this one, without the found backends and their hosts."""
        return replace(
            config,
            hosts={name: each for name, each in config.hosts.items() if name not in self.hosts},
            backends={name: each for name, each in config.backends.items() if name not in self.offers},
        )


class JoinedBackends:
    """All that services found. ``in_force``: what of it the configuration has now, at first ``config`` without any."""

    def __init__(self, config: Config, registry: Registry) -> None:
        self.in_force = Joined(config)
        self.found: Mapping[str, FoundBackend] = {}
        self._registry = registry

    def joined_to(self, config: Config) -> Joined:
        """``config`` with the found backends, and the hosts that they bring. What is configured wins over them.

        Backends that ``config`` cannot have are left out.
        """
        taken = {*config.backends, *(name for name, model in config.models.items() if model.launches)}
        offers: dict[str, Offer] = {}
        refused: dict[str, str] = {}
        for name, found in self.found.items():
            offer = self._offer(name, found, taken)
            if isinstance(offer, str):
                refused[name] = offer
            else:
                offers[name] = offer
        hosts = {
            each.settings.host: HostSettings(node=each.found.node, unit=each.found.unit)
            for each in offers.values()
            if each.settings.host not in (LOCAL_HOST, *config.hosts)
        }
        backends = {name: each.settings for name, each in offers.items()}
        joined = replace(config, hosts={**config.hosts, **hosts}, backends={**config.backends, **backends})
        return Joined(joined, offers, refused, hosts.keys())

    def _offer(self, name: str, found: FoundBackend, taken: Collection[str]) -> Offer | str:
        """``found`` as the configuration would have it, or why it cannot be used."""
        if name in taken:
            return "there is a backend of this name already; set another 'prefix'"
        known = self.in_force.offers.get(name)
        if known is not None and known.found == found:
            return known
        try:
            found = msgspec.convert(msgspec.structs.asdict(found), FoundBackend)
        except msgspec.ValidationError as error:
            return str(error)
        if problem := url_problem(found.url):
            return f"its url {problem}"
        settings = _settings(found)
        if isinstance(settings, str):
            return settings
        return unmet_by(name, settings, self._registry) or Offer(found, settings)


def _settings(found: FoundBackend) -> BackendSettings | str:
    """``found`` as ``[backends.NAME]`` would have it, or what is wrong with it."""
    said = {name: value for name, value in msgspec.to_builtins(found).items() if value is not None}
    table = {name: said[name] for name in BackendSettings.__struct_fields__ if name in said and name != "api_key"}
    table["host"] = found.host or found.node or LOCAL_HOST
    decoder = Decoder(Secret)
    plain = decoder.read(_backend_type(), table)
    if decoder.problems:
        problem = decoder.problems[0]
        return f"{dotted(problem.path)}: {problem.text}"
    settings = msgspec.convert(plain, BackendSettings)
    return replace(settings, api_key=Secret(found.api_key))


@cache
def _backend_type() -> Type:
    return type_info(BackendSettings)


class ModelSizes:
    """The wanted number of replicas of each model; the fewest where nobody wants another."""

    def __init__(self) -> None:
        self.wanted: Mapping[str, int] = {}

    def sized(self, config: Config) -> Config:
        """``config`` with as many backends as are wanted."""
        models = {
            name: replace(config.models[name], replicas=SizedRange(min=each.min, max=each.max, size=size))
            for name, each in _ranges(config).items()
            for size in [min(max(self.wanted.get(name, each.min), each.min), each.max)]
        }
        return replace(config, models={**config.models, **models}) if models else config

    def recall(self, config: Config, running: Collection[str]) -> bool:
        """Want as many as an earlier gateway has left ``running``, by the names of their backends; whether any."""
        left = {
            name: max(numbers)
            for name, each in _ranges(config).items()
            for backends in [enumerate(config.models[name].possible_backends(name), 1)]
            if (numbers := [number for number, backend in backends if backend in running]) and max(numbers) > each.min
        }
        self.wanted = {**self.wanted, **left}
        return bool(left)


def _ranges(config: Config) -> Mapping[str, ReplicaRange]:
    return {name: each.replicas for name, each in config.models.items() if isinstance(each.replicas, ReplicaRange)}
