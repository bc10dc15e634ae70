"""Drivers and launchers whose answers the gateway need not check."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec

from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.driver_support import SUPPORTS, DriverSupport, support_of
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.launchers import EngineProcess, Exit, Launcher
from enginehouse.telemetry.checked_plugin import CheckedPlugin, Returned, ask, methods_of, returned_by
from enginehouse.telemetry.plugin_failures import plugin_failed

_KILL_S = 5.0

_OF_DRIVERS, _OF_LAUNCHERS = methods_of(Driver, *SUPPORTS), methods_of(Launcher, EngineProcess)


def guarded_driver(plugin: PluginId, driver: Driver) -> DriverSupport:
    """What ``driver`` supports, with its answers checked."""
    guard: Any = _CheckedEngines(plugin, driver, _OF_DRIVERS)
    return DriverSupport._make(guard if each is driver else each for each in support_of(driver))


def guarded_launcher(plugin: PluginId, launcher: Launcher) -> Launcher:
    """``launcher`` with its answers checked as those of a driver, and those of the processes that it starts."""
    return cast("Launcher", _CheckedEngines(plugin, launcher, _OF_LAUNCHERS))


def unguarded_launcher(launcher: Launcher) -> Launcher:
    """The launcher behind a guard."""
    return cast("Launcher", launcher.unguarded) if isinstance(launcher, _CheckedEngines) else launcher


def unguarded(driver: DriverSupport) -> DriverSupport:
    """The driver behind a guard, for callers who show its errors to the operator who starts the gateway."""
    inner = driver.driver
    return support_of(inner.unguarded) if isinstance(inner, _CheckedEngines) else driver


class _CheckedEngines(CheckedPlugin):
    """Also checks the answers of the processes that it returns."""

    @staticmethod
    async def _asks(plugin: PluginId, returned: Returned, method: Callable[..., Any], *arguments: object) -> Any:
        answer = await ask(plugin, returned, method, *arguments)
        return _ProcessGuard(plugin, answer) if isinstance(answer, EngineProcess) else answer


class _ProcessGuard(_CheckedEngines):
    """A process whose exit cannot be awaited is stopped, and counts as exited."""

    def __init__(self, plugin: PluginId, process: EngineProcess) -> None:
        super().__init__(plugin, process, _OF_LAUNCHERS)
        try:
            self.address = str(process.address)
            self.handle = dict(process.handle)
            msgspec.json.encode(self.handle)  # raises now, not when it is recorded
        except BaseException as error:
            raise plugin_failed(plugin, error) from error

    async def exited(self) -> Exit:
        try:
            how: Exit | int | None = await ask(self._plugin, returned_by(_exited), self.unguarded.exited)
        except EnginehouseError:  # logged already
            with suppress(EnginehouseError):
                await self.stop(_KILL_S)
            return Exit()
        return how if isinstance(how, Exit) else Exit(status=how)


async def _exited() -> Exit | int | None:
    """Declares what ``EngineProcess.exited`` may return: launchers written for 0.1.0 return the status."""
