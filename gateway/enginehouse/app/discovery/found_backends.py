"""What discoverers have found, and how it joins a configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import Type, type_info
from msgspec.structs import replace

from enginehouse.config.decode import Decoder
from enginehouse.config.rules import LOCAL_HOST, is_base_url
from enginehouse.config.schema import BackendSettings, Config, DiscoverySettings, HostSettings
from enginehouse.config.secrets import Secret
from enginehouse.config.shape import dotted
from enginehouse.interfaces.discoverers import FoundBackend


class Offer(NamedTuple):
    """A found backend as the configuration has it."""

    found: FoundBackend
    settings: BackendSettings


class Joined(NamedTuple):
    """A configuration with found backends, of which ``backends`` and ``hosts`` are the names that it did not have.

    ``offers``: the found backends that no source has withdrawn. ``refused``: for each source, the backends that the
    configuration cannot have, and why.
    """

    config: Config
    offers: Mapping[str, Offer] = {}
    refused: Mapping[str, dict[str, str]] = {}
    backends: Collection[str] = ()
    hosts: Collection[str] = ()

    def without_found(self, config: Config) -> Config:
        """``config``, which was made of this one, without the found backends and their hosts."""
        return replace(
            config,
            hosts={name: each for name, each in config.hosts.items() if name not in self.hosts},
            backends={name: each for name, each in config.backends.items() if name not in self.backends},
        )


class Source:
    """The backends that one discoverer found last, by their names in this gateway.

    - ``listed_at``: when that was; ``None`` before the first list.
    - ``has_begun`` is set from the first list or failure on.
    - ``error``: why there is no newer list; empty if all is well.
    - ``refused``: the backends of the list that cannot be used, and why.
    """

    def __init__(self, name: str, settings: DiscoverySettings) -> None:
        self.name = name
        self.settings = settings
        self.backends: dict[str, FoundBackend] = {}
        self.listed_at: float | None = None
        self.has_begun = asyncio.Event()
        self.error = ""
        self.refused: dict[str, str] = {}
        self._prefix = f"{name}-" if settings.prefix is None else settings.prefix

    def take(self, found: Mapping[str, FoundBackend], now: float) -> None:
        self.backends = {f"{self._prefix}{name}": backend for name, backend in found.items()}
        self.listed_at, self.error = now, ""

    @property
    def problem(self) -> str:
        """Why the source failed, or why backends of its list are not used; empty if all is well."""
        return self.error or "; ".join(f"{name}: {why}" for name, why in self.refused.items())


class FoundBackends:
    """All that discoverers found, and the backends that they withdrew but that still have requests.

    ``in_force``: what of them the configuration has now, at first ``config`` without any. ``drivers``: the types of the
    installed drivers.
    """

    def __init__(self, config: Config, drivers: Collection[str]) -> None:
        self.in_force = Joined(config)
        self.sources: dict[str, Source] = {}
        self._leaving: dict[str, Offer] = {}
        self._drivers = drivers

    @property
    def leaving(self) -> Collection[str]:
        """The names of the withdrawn backends."""
        return self._leaving.keys()

    def listed(self, source: Source, found: Mapping[str, FoundBackend], now: float) -> bool:
        """Take a new list of ``source``; whether it differs. Backends that it withdraws are leaving."""
        before = source.backends
        source.take(found, now)
        self._leave(before.keys() - source.backends.keys())
        for name in source.backends:
            self._leaving.pop(name, None)
        return before != source.backends

    def remove(self, name: str) -> None:
        """Forget a source that is no longer configured: all its backends are leaving."""
        self._leave(self.sources.pop(name).backends.keys())

    def left(self, name: str) -> None:
        self._leaving.pop(name, None)

    def draining(self) -> set[str]:
        """The names of the backends that shall get no new requests."""
        return {*self._leaving, *(name for name, offer in self.in_force.offers.items() if offer.found.draining)}

    def joined_to(self, config: Config) -> Joined:
        """``config`` with the found backends, and the hosts that they bring. What is configured wins over them.

        Backends that ``config`` cannot have are left out. Nothing changes until ``commit``.
        """
        taken = {*config.backends, *(name for name, model in config.models.items() if model.launches)}
        offers: dict[str, Offer] = {}
        refused: dict[str, dict[str, str]] = {}
        for source in self.sources.values():
            refused[source.name] = why = {}
            for name, found in source.backends.items():
                offer = self._offer(name, found, source.settings, taken)
                if isinstance(offer, str):
                    why[name] = offer
                else:
                    offers[name] = offer
                    taken.add(name)
        leaving = {name: offer for name, offer in self._leaving.items() if name not in taken}
        every = {**offers, **leaving}
        settled = {LOCAL_HOST, *config.hosts}
        hosts = {
            each.settings.host: HostSettings(node=each.found.node, unit=each.found.unit)
            for each in every.values()
            if each.settings.host not in settled
        }
        backends = {name: each.settings for name, each in every.items()}
        joined = replace(config, hosts={**config.hosts, **hosts}, backends={**config.backends, **backends})
        return Joined(joined, offers, refused, backends.keys(), hosts.keys())

    def commit(self, joined: Joined) -> None:
        """Note that ``joined`` is in force."""
        self.in_force = joined
        for source in self.sources.values():
            source.refused = joined.refused.get(source.name, {})

    def _leave(self, names: Collection[str]) -> None:
        offers = self.in_force.offers
        self._leaving |= {name: offers[name] for name in names if name in offers}

    def _offer(self, name: str, found: FoundBackend, source: DiscoverySettings, taken: Collection[str]) -> Offer | str:
        """``found`` as the configuration would have it, or why it cannot be used."""
        if name in taken:
            return "there is a backend of this name already; set another 'prefix'"
        known = self.in_force.offers.get(name)
        if known is not None and known.found == found:
            return known
        if found.driver not in self._drivers:
            return f"there is no driver '{found.driver}'; install it"
        if not is_base_url(found.url):
            return "its url is not the address of a server"
        settings = _settings(found, source)
        return settings if isinstance(settings, str) else Offer(found, settings)


def _settings(found: FoundBackend, source: DiscoverySettings) -> BackendSettings | str:
    """``found`` as ``[backends.NAME]`` would have it, or what is wrong with it."""
    table: dict[str, Any] = {
        "url": found.url,
        "driver": found.driver,
        "role": found.role.value,
        "priority": found.priority,
        "concurrency": found.concurrency,
        "host": found.host or found.node or LOCAL_HOST,
        "verify_tls": found.verify_tls,
    }
    if found.models is not None:
        table["models"] = dict(found.models) if isinstance(found.models, Mapping) else list(found.models)
    decoder = Decoder(Secret)
    plain = decoder.read(_backend_type(), table)
    if decoder.problems:
        problem = decoder.problems[0]
        return f"{dotted(problem.path)}: {problem.text}"
    settings = msgspec.convert(plain, BackendSettings)
    return replace(settings, api_key=Secret(found.api_key or source.api_key))


@cache
def _backend_type() -> Type:
    return type_info(BackendSettings)
