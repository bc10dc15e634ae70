"""The driver of one model's engine, with the settings that the engine is launched by."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import EnginehouseError
from enginehouse.engines.footprints import Footprints
from enginehouse.engines.launch_line import fingerprint, launch_line, launch_spec
from enginehouse.engines.launch_rules import LaunchRules
from enginehouse.engines.probing.health_check import HealthCheck
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import LaunchLine

_log = logging.getLogger(__name__)

_QUESTION_S = 5.0
"""The time limit of a question that a ready engine need not answer."""


class ModelDriver:
    """Makes the launch line of one model's engine, and speaks with the engine through ``driver``.

    ``name``: the engine's, for the log. ``connect`` makes a client from an address.
    """

    def __init__(
        self,
        name: str,
        model_name: str,
        model: ModelSettings,
        driver: DriverSupport,
        rules: LaunchRules,
        connect: Callable[[str], EngineClient],
    ) -> None:
        self._name = name
        self._model_name = model_name
        self._model = model
        self._driver = driver
        self._rules = rules
        self._connect = connect

    def launch_line(self, port: int, gpus: str = "") -> LaunchLine:
        """The launch line of the engine on ``port``. Raises ``ConfigError``."""
        return launch_line(self._model_name, self._model, self._driver.launch, port, rules=self._rules, gpus=gpus)

    def footprint_key(self) -> str | None:
        """The name under which the memory of an engine with this launch line is known; ``None`` if it has none."""
        try:
            return Footprints.key(self._model_name, fingerprint(self.launch_line(0)))
        except EnginehouseError:
            return None

    async def until_healthy(self, address: str, note: Callable[[str], None]) -> None:
        """Wait until the engine at ``address`` can take requests. ``note`` gets each problem meanwhile."""
        check = HealthCheck(self._driver.driver, self._model.health_path)
        await check.wait_until_healthy(self._connect(address), note)

    async def concurrency(self, address: str) -> int | None:
        """The number of requests that the ready engine reports to serve at once; ``None`` if it reports none."""
        if self._model.concurrency:
            return None
        try:
            return await run_within(_QUESTION_S, self._driver.figures.concurrency(self._connect(address)))
        except Exception as error:
            _log.debug("%s does not report its concurrency: %s", self._name, error or type(error).__name__)
            return None

    async def sleep(self, address: str, port: int) -> bool:
        """Put the engine to sleep; whether it agreed within ``stop_timeout``."""
        return await self._agrees(self._driver.sleep.sleep_as_launched, address, port, self._model.stop_timeout)

    async def wake(self, address: str, port: int) -> bool:
        """Wake the engine; whether it agreed within ``start_timeout``."""
        return await self._agrees(self._driver.sleep.wake_as_launched, address, port, self._model.start_timeout)

    async def _agrees(
        self,
        ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]],
        address: str,
        port: int,
        timeout: float,
    ) -> bool:
        try:
            spec = launch_spec(self._model_name, self._model, self._driver.launch, port, self._rules)
            return await run_within(timeout, ask(self._connect(address), spec))
        except Exception as error:
            _log.warning("%s could not be put to sleep or woken: %s", self._name, error or type(error).__name__)
            return False
