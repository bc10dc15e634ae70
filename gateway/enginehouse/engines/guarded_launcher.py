"""A launcher whose processes the gateway need not check."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Launcher, LaunchLine
from enginehouse.telemetry.plugin_failures import await_plugin, plugin_failed, wrong_result

_KILL_S = 5.0


class GuardedLauncher(Launcher):
    """Runs another launcher and checks the processes that it returns.

    A wrong result and any exception but an ``EnginehouseError`` become ``PluginFailed``, which names the launcher's
    type and plugin, but nothing of the exception except its class.
    """

    def __init__(self, plugin: PluginId, launcher: Launcher) -> None:
        self._plugin = plugin
        self._launcher = launcher

    def prepare(self, logs: Path) -> None:
        self._launcher.prepare(logs)

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        return self._checked("launch", await await_plugin(self._plugin, self._launcher.launch, name, line, output))

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        process = await await_plugin(self._plugin, self._launcher.adopt, name, line, handle, output)
        return None if process is None else self._checked("adopt", process)

    def _checked(self, method: str, process: EngineProcess) -> EngineProcess:
        if not isinstance(process, EngineProcess):
            returned = f"an object of type {type(process).__name__}"
            raise wrong_result(self._plugin, f"returned {returned} from {method} instead of an EngineProcess")
        try:
            return _GuardedProcess(self._plugin, process)
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error


class _GuardedProcess(EngineProcess):
    """Runs another process. One whose exit cannot be awaited is stopped, and counts as exited."""

    def __init__(self, plugin: PluginId, process: EngineProcess) -> None:
        self.address = str(process.address)
        self.handle = dict(process.handle)
        msgspec.json.encode(self.handle)  # raises now, not when it is recorded
        self._plugin = plugin
        self._process = process

    async def exited(self) -> int | None:
        try:
            status = await await_plugin(self._plugin, self._process.exited)
        except EnginehouseError:  # logged already
            with suppress(EnginehouseError):
                await self.stop(_KILL_S)
            return None
        return status if type(status) is int else None

    async def memory(self) -> int | None:
        memory = await await_plugin(self._plugin, self._process.memory)
        if memory is not None and type(memory) is not int:
            raise wrong_result(self._plugin, f"returned an object of type {type(memory).__name__} from memory")
        return memory

    async def processes(self) -> Collection[int]:
        found = await await_plugin(self._plugin, self._process.processes)
        if not isinstance(found, (list, tuple, set, frozenset)) or not all(type(each) is int for each in found):
            raise wrong_result(self._plugin, f"returned an object of type {type(found).__name__} from processes")
        return found

    async def stop(self, timeout: float) -> None:
        await await_plugin(self._plugin, self._process.stop, timeout)
