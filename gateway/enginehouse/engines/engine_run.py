"""One run of an engine: its process, and what the gateway asks of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import PluginFailed
from enginehouse.engines.kept_cache import KeptCache
from enginehouse.engines.launch_line import ModelLaunch
from enginehouse.engines.launches import Launches
from enginehouse.engines.managed_replica import ManagedReplica
from enginehouse.engines.start_errors import StartErrors
from enginehouse.engines.start_limits import longest_silence
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.places import EngineNeeds, Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_QUESTION_S = 5.0
"""The time limit of a question that a ready engine need not answer."""


class EngineParts(Protocol):
    """What the starts and the runs of an engine need of it."""

    name: str
    managed: ManagedReplica
    line: ModelLaunch
    needs: EngineNeeds
    gpus: str
    log: LogRing
    errors: StartErrors
    cache: KeptCache
    launches: Launches
    connect: Callable[[str], EngineClient]


class EngineRun:
    """One run of ``engine``, as ``process`` in ``place``. ``client`` speaks with it.

    ``first_line``: the number of the first line that it printed. ``is_warm``: it was ready, so that its prefix cache
    may be worth keeping.
    """

    def __init__(self, engine: EngineParts, process: EngineProcess, place: Place, first_line: int) -> None:
        self.process = process
        self.client = engine.connect(process.address)
        self.place = place
        self.first_line = first_line
        self.is_warm = False
        self._engine = engine

    async def concurrency(self) -> int | None:
        """The number of requests that it reports to serve at once; ``None`` if it reports none, or is not asked."""
        if self._engine.managed.model.concurrency:
            return None
        try:
            return await run_within(_QUESTION_S, self._engine.managed.driver.figures.concurrency(self.client))
        except Exception as error:
            text = "%s does not report its concurrency: %s"
            _log.debug(text, self._engine.name, error or type(error).__name__)
            return None

    async def wake(self) -> bool:
        """Whether it wakes."""
        managed = self._engine.managed
        return await self._agrees(managed.driver.sleep.wake_as_launched, longest_silence(managed.model))

    async def sleep(self) -> bool:
        """Whether it goes to sleep."""
        managed = self._engine.managed
        return await self._agrees(managed.driver.sleep.sleep_as_launched, managed.model.stop_timeout)

    async def save_cache(self) -> None:
        """Save its prefix cache, before it stops or sleeps."""
        driver, model = self._engine.managed.driver.cache, self._engine.managed.model
        if self.is_warm and driver is not None and model.keep_cache:
            await self._engine.cache.save(driver, self.client, model.keep_cache_wait, model.keep_cache)
        self.is_warm = False

    async def end(self, timeout: float) -> None:
        """End it: at once if ``timeout`` is 0, else within so many seconds after its cache was saved."""
        try:
            if timeout:
                await self.save_cache()
            await self._engine.launches.ownership.stop(self.process, timeout)
            self._engine.launches.ended(self.process)
        except PluginFailed as error:
            _log.error("%s may still run: %s", self._engine.name, error)

    async def _agrees(
        self, ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]], timeout: float
    ) -> bool:
        """Whether the engine does in time what it is asked for."""
        async with self._engine.launches.ownership.act():
            try:
                return await run_within(timeout, ask(self.client, self._engine.line.spec(self.place)))
            except Exception as error:
                text = "%s could not be put to sleep or woken: %s"
                _log.warning(text, self._engine.name, error or type(error).__name__)
                return False
