"""Guards of drivers, launchers and their processes: their answers are checked, so that errors name the plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.driver_support import SUPPORTS, DriverSupport, support_of
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Exit, Launcher, LaunchLine
from enginehouse.telemetry.checked_plugin import CheckedPlugin, ask, methods_of
from enginehouse.telemetry.plugin_failures import plugin_failed

_KILL_S: Final = 5.0
_OF_DRIVERS: Final = methods_of(Driver, *SUPPORTS)
_OF_LAUNCHERS: Final = methods_of(Launcher)
_OF_PROCESSES: Final = methods_of(EngineProcess)


def guarded_driver(plugin: PluginId, driver: Driver) -> DriverSupport:
    """What ``driver`` supports, with its answers checked."""
    guard: Any = CheckedPlugin(plugin, driver, _OF_DRIVERS)
    return DriverSupport._make(guard if each is driver else each for each in support_of(driver))


def guarded_launcher(plugin: PluginId, launcher: Launcher) -> Launcher:
    """``launcher`` with its answers checked as those of a driver, and those of the processes that it starts."""
    return cast("Launcher", _GuardedLauncher(plugin, launcher))


def unguarded_launcher(launcher: Launcher) -> Launcher:
    """The launcher behind a guard."""
    return cast("Launcher", launcher.unguarded) if isinstance(launcher, CheckedPlugin) else launcher


def unguarded(driver: DriverSupport) -> DriverSupport:
    """The driver behind a guard, for callers who show its errors to the operator who starts the gateway."""
    inner = driver.driver
    return support_of(inner.unguarded) if isinstance(inner, CheckedPlugin) else driver


class _GuardedLauncher(CheckedPlugin):
    """Another launcher, whose processes are guarded too."""

    def __init__(self, plugin: PluginId, launcher: Launcher) -> None:
        super().__init__(plugin, launcher, _OF_LAUNCHERS)

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> _GuardedProcess | None:
        return await self._guarded(Launcher.launch, self.unguarded.launch, name, line, output)

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> _GuardedProcess | None:
        return await self._guarded(Launcher.adopt, self.unguarded.adopt, name, line, handle, output)

    async def _guarded(
        self, declared: Callable[..., Any], method: Callable[..., Any], *arguments: object
    ) -> _GuardedProcess | None:
        """The process that ``method`` returns. It is stopped if it cannot be recorded: nobody would find it again."""
        process = await ask(self._plugin, _anything, method, *arguments)
        try:
            await ask(self._plugin, declared, lambda: process)
            return None if process is None else _GuardedProcess(self._plugin, process)
        except EnginehouseError:
            if isinstance(process, EngineProcess):  # else there is nothing to stop
                await _give_up(self._plugin, process)
            raise


class _GuardedProcess(CheckedPlugin):
    """A process whose exit cannot be awaited is stopped, and counts as exited."""

    def __init__(self, plugin: PluginId, process: EngineProcess) -> None:
        super().__init__(plugin, process, _OF_PROCESSES)
        try:
            self.address = str(process.address)
            self.handle = dict(process.handle)
            msgspec.json.encode(self.handle)  # raises now, not when it is recorded
        except BaseException as error:
            raise plugin_failed(plugin, error) from error

    async def exited(self) -> Exit:
        try:
            how: Exit | int | None = await ask(self._plugin, _exited, self.unguarded.exited)
        except EnginehouseError:  # logged already
            await _give_up(self._plugin, self.unguarded)
            return Exit()
        return how if isinstance(how, Exit) else Exit(status=how)


async def _give_up(plugin: PluginId, process: EngineProcess) -> None:
    """Stop a process that cannot be supervised. A failure is logged."""
    with suppress(EnginehouseError):
        await ask(plugin, EngineProcess.stop, process.stop, _KILL_S)


async def _anything() -> object:
    """Declares that every answer will do."""


async def _exited() -> Exit | int | None:
    """Declares what ``EngineProcess.exited`` may return: launchers written for 0.1.0 return the status."""
