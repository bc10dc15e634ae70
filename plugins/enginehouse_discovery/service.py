"""Watches the configured discoverers, and has the gateway serve with what they find."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from enginehouse import EnginehouseError, Service
from enginehouse.backends import DiscoverySettings, FoundBackend
from enginehouse.runtime import BackgroundTasks
from enginehouse.services import Measured, MetricInfo, ServiceGateway
from enginehouse.settings import dotted
from enginehouse_kit.discoverers import Discoverer

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_LOOK_EVERY_S = 0.2
"""How often it looks whether a withdrawn backend still has requests."""

DISCOVERED = MetricInfo(
    "gauge", "enginehouse_discovered_backends", "Backends in a discoverer's last list.", ("discovery",)
)
DISCOVERY_AGE = MetricInfo(
    "gauge", "enginehouse_discovery_age_seconds", "Age of a discoverer's last list.", ("discovery",)
)
_TAKEN = "there is a backend of this name already; set another 'prefix'"


class Discovery(Service):
    """Watches the discoverers of ``[discovery]``.

    A backend that is withdrawn, or that its discoverer calls draining, gets no new requests, and its streams move away.
    A withdrawn one leaves when it has no requests any more, or after ``server.drain_timeout``.
    """

    table = "discovery"
    metrics = (DISCOVERED, DISCOVERY_AGE)

    def __init__(self) -> None:
        self._gateway: ServiceGateway
        self._sources = Sources()
        self._joined: dict[str, FoundBackend] = {}
        self._drained: set[str] = set()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()
        self._leaving: asyncio.Task[None] | None = None

    def prepare(self, gateway: ServiceGateway) -> None:
        for name, settings in gateway.table("discovery").items():
            _discoverer(gateway, name, settings)

    async def start(self, gateway: ServiceGateway) -> None:
        self.reconfigure(gateway)
        for source in [*self._sources.by_name.values()]:
            await source.has_begun.wait()

    def reconfigure(self, gateway: ServiceGateway) -> None:
        """Watch the discoverers of the configuration in force. Those that are configured as before go on."""
        self._gateway = gateway
        sources, settings = self._sources, gateway.table("discovery")
        for name in [name for name, each in sources.by_name.items() if settings.get(name) != each.settings]:
            self._watches.pop(name).cancel()
            sources.remove(name)
        self._put_in_force()
        for name, each in settings.items():
            if name not in sources.by_name:
                sources.by_name[name] = source = Source(name, each)
                discoverer = _discoverer(gateway, name, each)
                if gateway.address is not None:
                    discoverer.serves_at(*gateway.address)
                self._watches[name] = self._tasks.start(self._keep_watching(source, discoverer))

    def stop(self) -> None:
        """Watch nothing any more. What was found stays in force."""
        self._tasks.cancel()

    def status(self) -> Mapping[str, Any]:
        return {"discovery": [*self._rows()]}

    def measure(self) -> Measured:
        rows = [*self._rows()]
        return {
            DISCOVERED: [([each.name], each.backends) for each in rows],
            DISCOVERY_AGE: [([each.name], each.age_s) for each in rows if each.age_s is not None],
        }

    def _rows(self) -> Iterator[DiscoveryStatus]:
        for source in self._sources.by_name.values():
            age = None if source.listed_at is None else round(self._gateway.clock.now() - source.listed_at, 3)
            yield DiscoveryStatus(
                name=source.name,
                type=source.settings.type,
                backends=len(source.backends),
                age_s=age,
                error=source.problem or None,
                found=[
                    FoundStatus(name=name, draining=found.draining, labels=found.labels)
                    for name, found in source.backends.items()
                ],
            )

    async def _keep_watching(self, source: Source, discoverer: Discoverer) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            listed_at = source.listed_at
            why = await self._watch(source, discoverer)
            if source.listed_at != listed_at:
                pause = _FIRST_PAUSE_S
            if why != source.error:
                _log.warning("discovery.%s: %s; the last list is still used", source.name, why)
            source.error = why
            source.has_begun.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _watch(self, source: Source, discoverer: Discoverer) -> str:
        """Take the lists of ``discoverer`` until it ends or fails; why it did."""
        try:
            async for found in discoverer.watch():
                self._listed(source, found)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # even SystemExit, which would end the gateway
            plain = isinstance(error, EnginehouseError | OSError) and str(error)
            return str(error) if plain else f"{type(error).__name__}: {error}".rstrip(": ")
        return "it ended its list"

    def _listed(self, source: Source, found: Mapping[str, FoundBackend]) -> None:
        if not isinstance(found, Mapping) or not all(isinstance(each, FoundBackend) for each in found.values()):
            raise TypeError(f"it must yield a mapping of names to FoundBackend, got {found!r}")
        problem = source.problem
        if self._sources.listed(source, found, self._gateway.clock.now()):
            self._put_in_force()
        if source.problem and source.problem != problem:
            _log.warning("discovery.%s: %s", source.name, source.problem)
        source.has_begun.set()

    def _put_in_force(self, gone: frozenset[str] = frozenset()) -> None:
        """Serve with what is found now, without withdrawn backends that have no requests, or are ``gone``."""
        sources, backends = self._sources, self._gateway.backends
        for name in [name for name in sources.leaving if name in gone or not self._serves(name)]:
            del sources.leaving[name]
        wanted = sources.wanted()
        if changed := {name: each for name, each in wanted.items() if self._joined.get(name) != each}:
            backends.join(changed)
        if left := self._joined.keys() - wanted.keys():
            backends.leave(left)
        self._joined = wanted
        sources.note_refused(backends.refused)
        self._drain()
        if sources.leaving and (self._leaving is None or self._leaving.done()):
            self._leaving = self._tasks.start(self._see_off())

    def _drain(self) -> None:
        """Drain what is to be drained, and drain no more what was so because of its discoverer."""
        backends = self._gateway.backends
        known = {each.name for each in backends}
        wanted = self._sources.draining() & known
        for name in (self._drained - wanted) & known:
            backends.undrain(name)
        for name in wanted - self._drained:
            backends.drain(name)
        self._drained = wanted

    def _serves(self, backend: str) -> bool:
        return any(each.backend == backend for each in self._gateway.requests)

    async def _see_off(self) -> None:
        """Let withdrawn backends leave when their requests have ended."""
        since: dict[str, float] = {}
        while leaving := self._sources.leaving:
            now = self._gateway.clock.now()
            since = {name: since.get(name, now) for name in leaving}
            longest = self._gateway.table("server").drain_timeout
            late = frozenset(name for name, at in since.items() if now - at >= longest)
            if late or not all(map(self._serves, leaving)):
                self._put_in_force(late)
            await asyncio.sleep(_LOOK_EVERY_S)


def _discoverer(gateway: ServiceGateway, name: str, settings: DiscoverySettings) -> Discoverer:
    """The discoverer of ``[discovery.NAME]``. Raises ``ConfigError`` or ``PluginError``."""
    key = dotted(("discovery", name, "type"))
    made: Discoverer
    _, made = gateway.plugin("discoverer", settings.type, key, settings.parameters)
    return made


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
        """Replace the list."""
        key = str(self.settings.api_key)
        self.backends = {
            f"{self._prefix}{name}": backend if backend.api_key or not key else replace(backend, api_key=key)
            for name, backend in found.items()
        }
        self.listed_at, self.error = now, ""

    @property
    def problem(self) -> str:
        """Why the source failed, or why backends of its list are not used; empty if all is well."""
        return self.error or "; ".join(f"{name}: {why}" for name, why in self.refused.items())


class Sources:
    """All that discoverers found, and the backends that they withdrew but that still have requests: ``leaving``."""

    def __init__(self) -> None:
        self.by_name: dict[str, Source] = {}
        self.leaving: dict[str, FoundBackend] = {}

    def listed(self, source: Source, found: Mapping[str, FoundBackend], now: float) -> bool:
        """Take a new list of ``source``; whether it differs. Backends that it withdraws are leaving."""
        before = source.backends
        source.take(found, now)
        self._leave(source, {name: each for name, each in before.items() if name not in source.backends})
        return before != source.backends

    def remove(self, name: str) -> None:
        """Forget a source that is no longer configured: all its backends are leaving."""
        source = self.by_name.pop(name)
        source.has_begun.set()  # a start waits for it no longer
        self._leave(source, source.backends)

    def wanted(self) -> dict[str, FoundBackend]:
        """The backends to serve with. Of two of one name, that of the first source counts."""
        found: dict[str, FoundBackend] = {}
        for source in self.by_name.values():
            for name, backend in source.backends.items():
                found.setdefault(name, backend)
        self.leaving = {name: each for name, each in self.leaving.items() if name not in found}
        return {**found, **self.leaving}

    def note_refused(self, refused: Mapping[str, str]) -> None:
        """Note for each source the backends that the gateway has refused, and those that another source has too."""
        owners: dict[str, Source] = {}
        for source in self.by_name.values():
            source.refused = {}
            for name in source.backends:
                if owners.setdefault(name, source) is not source:
                    source.refused[name] = _TAKEN
                elif name in refused:
                    source.refused[name] = refused[name]
        self.leaving = {name: each for name, each in self.leaving.items() if name not in refused}

    def draining(self) -> set[str]:
        """The names of the backends that shall get no new requests."""
        listed = (
            name
            for source in self.by_name.values()
            for name, each in source.backends.items()
            if each.draining and name not in source.refused
        )
        return {*self.leaving, *listed}

    def _leave(self, source: Source, backends: Mapping[str, FoundBackend]) -> None:
        self.leaving |= {name: each for name, each in backends.items() if name not in source.refused}


class FoundStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A backend in a discoverer's last list, by its name in this gateway."""

    name: str
    draining: bool
    labels: Mapping[str, str]


class DiscoveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One discoverer and its last list.

    - ``backends``: how many the list has; ``found`` describes each.
    - ``age_s``: seconds since the list was confirmed; ``None`` before the first one.
    - ``error``: why there is no newer list, or which of its backends cannot be used; ``None`` if all is well.
    """

    name: str
    type: str
    backends: int
    age_s: float | None
    error: str | None
    found: Sequence[FoundStatus]
