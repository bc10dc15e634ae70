"""Speaks with the engine of one model through its driver, by the settings that the engine is launched by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import ModelSettings
from enginehouse.engines.launch_line import LaunchRules, ModelLaunch
from enginehouse.engines.probing.health_check import HealthCheck
from enginehouse.engines.start_errors import StartErrors
from enginehouse.engines.start_limits import longest_silence
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_QUESTION_S = 5.0
"""The time limit of a question that a ready engine need not answer."""


class EngineRun(NamedTuple):
    """One run of an engine. ``client`` speaks with it. ``first_line``: the number of the first line that it printed."""

    process: EngineProcess
    client: EngineClient
    place: Place
    first_line: int


class ModelDriver:
    """Speaks with one model's engine through ``driver``. ``launch`` makes its launch lines.

    ``name``: the engine's, for the log.
    """

    def __init__(
        self, name: str, model_name: str, model: ModelSettings, driver: DriverSupport, rules: LaunchRules
    ) -> None:
        self._own = (name, model_name, model, driver, rules)
        self.launch = ModelLaunch(model_name, model, driver.launch, rules, backend=name)
        self._name = name
        self._model = model
        self._driver = driver

    def anew(self) -> ModelDriver:
        """The same, with launch lines that know the files of now."""
        return ModelDriver(*self._own)

    async def until_healthy(
        self, run: EngineRun, log: LogRing, errors: StartErrors, note: Callable[[str], None]
    ) -> None:
        """Wait until the engine is healthy; ``note`` gets each problem meanwhile.

        Raises ``LoadFailed`` if the engine exits first.
        """
        printed = asyncio.Event()
        log.follow(printed)
        healthy = asyncio.ensure_future(self._is_healthy(run, printed, note))
        exited = asyncio.ensure_future(run.process.exited())
        try:
            await asyncio.wait({healthy, exited}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                raise errors.exited_early(exited.result(), run.first_line)
            healthy.result()
        finally:
            log.unfollow(printed)
            healthy.cancel()
            exited.cancel()
            del healthy, exited  # a failure refers to this frame, and its task to the failure

    async def _is_healthy(self, run: EngineRun, printed: asyncio.Event, note: Callable[[str], None]) -> None:
        await run.process.listening()
        check = HealthCheck(self._driver.driver, self._model.health_path)
        await check.wait_until_healthy(run.client, printed, note)

    async def concurrency(self, run: EngineRun) -> int | None:
        """The number of requests that the ready engine reports to serve at once; ``None`` if it reports none."""
        if self._model.concurrency:
            return None
        try:
            return await run_within(_QUESTION_S, self._driver.figures.concurrency(run.client))
        except Exception as error:
            _log.debug("%s does not report its concurrency: %s", self._name, error or type(error).__name__)
            return None

    async def sleep(self, run: EngineRun) -> bool:
        """Put the engine to sleep; whether it agreed within ``stop_timeout``."""
        return await self._agrees(self._driver.sleep.sleep_as_launched, run, self._model.stop_timeout)

    async def wake(self, run: EngineRun) -> bool:
        """Wake the engine; whether it agreed within ``start_timeout`` and ``start_silence``."""
        return await self._agrees(self._driver.sleep.wake_as_launched, run, longest_silence(self._model))

    async def _agrees(
        self, ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]], run: EngineRun, timeout: float
    ) -> bool:
        try:
            return await run_within(timeout, ask(run.client, self.launch.spec(run.place)))
        except Exception as error:
            _log.warning("%s could not be put to sleep or woken: %s", self._name, error or type(error).__name__)
            return False
