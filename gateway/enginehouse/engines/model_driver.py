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
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import EngineProcess

_log = logging.getLogger(__name__)

_QUESTION_S = 5.0
"""The time limit of a question that a ready engine need not answer."""


class EngineRun(NamedTuple):
    """One run of an engine. ``client`` speaks with it. ``first_line``: the number of the first line that it printed."""

    process: EngineProcess
    client: EngineClient
    port: int
    first_line: int


class ModelDriver:
    """Speaks with one model's engine through ``driver``. ``launch`` makes its launch lines.

    ``name``: the engine's, for the log.
    """

    def __init__(
        self, name: str, model_name: str, model: ModelSettings, driver: DriverSupport, rules: LaunchRules
    ) -> None:
        self.launch = ModelLaunch(model_name, model, driver.launch, rules)
        self._name = name
        self._model = model
        self._driver = driver

    async def until_healthy(
        self, run: EngineRun, errors: StartErrors, deadline: float, note: Callable[[str], None]
    ) -> None:
        """Wait until the engine is healthy; ``note`` gets each problem meanwhile. ``deadline``: on the loop's clock.

        Raises ``LoadFailed`` if the engine exits first, and ``TimeoutError`` at the deadline.
        """
        check = HealthCheck(self._driver.driver, self._model.health_path)
        healthy = asyncio.ensure_future(check.wait_until_healthy(run.client, note))
        exited = asyncio.ensure_future(run.process.exited())
        try:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait({healthy, exited}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                raise errors.exited_early(exited.result(), run.first_line)
            if not healthy.done():
                raise TimeoutError
            healthy.result()
        finally:
            healthy.cancel()
            exited.cancel()

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
        """Wake the engine; whether it agreed within ``start_timeout``."""
        return await self._agrees(self._driver.sleep.wake_as_launched, run, self._model.start_timeout)

    async def _agrees(
        self, ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]], run: EngineRun, timeout: float
    ) -> bool:
        try:
            return await run_within(timeout, ask(run.client, self.launch.spec(run.port)))
        except Exception as error:
            _log.warning("%s could not be put to sleep or woken: %s", self._name, error or type(error).__name__)
            return False
