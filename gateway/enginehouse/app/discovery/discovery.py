"""Watches the configured discoverers, and puts what they find in force."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.discovery.found_backends import FoundBackends, Source
from enginehouse.app.plugin_instances import create
from enginehouse.app.request_path import RequestPath
from enginehouse.config.schema import Config, DiscoverySettings
from enginehouse.config.shape import dotted
from enginehouse.domain.discovery_status import DiscoveryStatus, FoundStatus
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.domain.foreign import describe, shown
from enginehouse.interfaces.discoverers import Discoverer, FoundBackend
from enginehouse.plugin_manager.registry import Registry

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_LOOK_EVERY_S = 0.2
"""How often it looks whether a withdrawn backend still has requests."""


class Discovery:
    """Watches the discoverers of ``[discovery]``; ``found`` is what they found.

    ``address``: where the gateway listens, if it does. A backend that is withdrawn, or that its discoverer calls
    draining, gets no new requests, and its streams move away. A withdrawn one leaves when it has no requests any more,
    or after ``server.drain_timeout``.
    """

    def __init__(self, path: RequestPath) -> None:
        self.found = FoundBackends(path.config, path.registry.types("driver"))
        self.address: tuple[str, int] | None = None
        self._path = path
        self._relay = path.relay
        self._clock = path.relay.context.clock
        self._rejoin: Callable[[], None] = lambda: None
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()
        self._drained: set[str] = set()
        self._leaving: asyncio.Task[None] | None = None
        self._is_open = False
        check_discovery(path.config, path.registry)

    def open(self, rejoin: Callable[[], None]) -> None:
        """Begin to watch. ``rejoin`` puts a configuration with all found backends in force, in one step."""
        self._is_open, self._rejoin = True, rejoin
        self.reconfigure()

    def close(self) -> None:
        """Watch nothing any more. What was found stays in force."""
        self._is_open = False
        self._tasks.cancel()

    def reconfigure(self) -> None:
        """Watch the discoverers of the configuration in force. Those that are configured as before go on."""
        if not self._is_open:
            return
        config = self._path.config
        removed = [name for name, each in self.found.sources.items() if config.discovery.get(name) != each.settings]
        for name in removed:
            self._watches.pop(name).cancel()
            self.found.remove(name)
        if removed:
            self._put_in_force()
        for name, settings in config.discovery.items():
            if name not in self.found.sources:
                self.found.sources[name] = source = Source(name, settings)
                discoverer = make_discoverer(config, self._path.registry, name, settings)
                if self.address is not None:
                    discoverer.serves_at(*self.address)
                self._watches[name] = self._tasks.start(self._keep_watching(source, discoverer))

    async def first_lists(self) -> None:
        """Wait until every discoverer has yielded a list, or failed."""
        for source in [*self.found.sources.values()]:
            await source.has_begun.wait()

    def drain(self) -> None:
        """Drain what is to be drained, and drain no more what was so because of its discoverer. Call it after joins."""
        fleet, wanted = self._relay.context.fleet, self.found.draining()
        known = {each.name for each in fleet.backends()}
        for name in (self._drained - wanted) & known:
            fleet.undrain(name)
        for name in wanted - self._drained:
            fleet.drain(name)
            self._relay.drains.begin(name)
        self._drained = wanted

    async def _keep_watching(self, source: Source, discoverer: Discoverer) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            listed_at = source.listed_at
            why = await self._watch(source, discoverer)
            if source.listed_at != listed_at:
                pause = _FIRST_PAUSE_S
            if why != source.error:
                _log.warning("discovery.%s: %s; the last list stays in force", source.name, why)
            source.error = why
            source.has_begun.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _watch(self, source: Source, discoverer: Discoverer) -> str:
        """Take the lists of ``discoverer`` until it ends or fails; why it did."""
        try:
            async for found in discoverer.watch():
                self._listed(source, found)
        except Exception as error:
            return str(error) if isinstance(error, EnginehouseError | OSError) and str(error) else describe(error)
        return "it ended its list"

    def _listed(self, source: Source, found: Mapping[str, FoundBackend]) -> None:
        if not isinstance(found, Mapping) or not all(isinstance(each, FoundBackend) for each in found.values()):
            raise TypeError(f"it must yield a mapping of names to FoundBackend, got {shown(found)}")
        problem = source.problem
        if self.found.listed(source, found, self._clock.now()):
            self._put_in_force()
        if source.problem and source.problem != problem:
            _log.warning("discovery.%s: %s", source.name, source.problem)
        source.has_begun.set()

    def _put_in_force(self) -> None:
        for name in [each for each in self.found.leaving if not self._relay.drains.live(each)]:
            self.found.left(name)
        self._rejoin()
        if self.found.leaving and (self._leaving is None or self._leaving.done()):
            self._leaving = self._tasks.start(self._see_off())

    async def _see_off(self) -> None:
        """Remove withdrawn backends when their requests have ended."""
        since: dict[str, float] = {}
        while self.found.leaving:
            now = self._clock.now()
            since = {name: since.get(name, now) for name in self.found.leaving}
            longest = self._path.config.server.drain_timeout
            gone = [n for n, at in since.items() if now - at >= longest or not self._relay.drains.live(n)]
            for name in gone:
                self.found.left(name)
            if gone:
                self._rejoin()
            await asyncio.sleep(_LOOK_EVERY_S)

    def status(self) -> list[DiscoveryStatus]:
        now = self._clock.now()
        return [
            DiscoveryStatus(
                name=source.name,
                type=source.settings.type,
                backends=len(source.backends),
                age_s=None if source.listed_at is None else round(now - source.listed_at, 3),
                error=source.problem or None,
                found=[
                    FoundStatus(name=name, draining=found.draining, labels=found.labels)
                    for name, found in source.backends.items()
                ],
            )
            for source in self.found.sources.values()
        ]


def make_discoverer(config: Config, registry: Registry, name: str, settings: DiscoverySettings) -> Discoverer:
    """The discoverer of ``[discovery.NAME]``. Raises ``ConfigError`` or ``PluginError``."""
    key = dotted(("discovery", name))
    try:
        made: Discoverer = create(
            config, registry, "discoverer", settings.type, f"{key}.type", settings.parameters, key
        )
    except ConfigError as error:
        if error.key:
            raise
        raise ConfigError(error.problem, key=key, remedy=error.remedy) from None
    return made


def check_discovery(config: Config, registry: Registry) -> None:
    """Make every discoverer once. Raises ``ConfigError`` or ``PluginError`` for what could not be watched."""
    for name, settings in config.discovery.items():
        make_discoverer(config, registry, name, settings)
