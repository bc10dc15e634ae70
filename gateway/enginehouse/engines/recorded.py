"""A launcher whose engines are written down while they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.state_file import EngineRecord, StateFile
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Launcher, LaunchLine


class RecordedLauncher:
    """Launches the engines of ``host`` with ``launcher``, keeping ``state_file`` true."""

    def __init__(self, host: str, launcher: Launcher, state_file: StateFile) -> None:
        self._host = host
        self._launcher = launcher
        self._state_file = state_file

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start an engine, written down before and after: the gateway may die in between."""
        begun = EngineRecord(host=self._host, port=line.port, fingerprint=fingerprint(line), handle={})
        self._state_file.put(name, begun)
        try:
            process = await self._launcher.launch(name, line, output)
        except BaseException:
            self._state_file.remove(name, begun)
            raise
        return self._recorded(process, name, begun)

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        """Take over an engine that is written down, or forget it if it has gone."""
        record = self._state_file.records[name]
        process = await self._launcher.adopt(name, line, handle, output)
        if process is None:
            self._state_file.remove(name, record)
            return None
        return self._recorded(process, name, record)

    def _recorded(self, process: EngineProcess, name: str, before: EngineRecord) -> EngineProcess:
        record = msgspec.structs.replace(before, handle=dict(process.handle))
        self._state_file.put(name, record)
        return _Recorded(process, self._state_file, name, record)


class _Recorded:
    """An engine's process, forgotten when it has gone."""

    def __init__(self, process: EngineProcess, state_file: StateFile, name: str, record: EngineRecord) -> None:
        self._process = process
        self._state_file = state_file
        self._name = name
        self._record = record

    @property
    def address(self) -> str:
        return self._process.address

    @property
    def handle(self) -> Mapping[str, Any]:
        return self._process.handle

    async def exited(self) -> int | None:
        status = await self._process.exited()
        self._state_file.remove(self._name, self._record)
        return status

    async def memory(self) -> int | None:
        return await self._process.memory()

    async def stop(self, timeout: float) -> None:
        await self._process.stop(timeout)
        self._state_file.remove(self._name, self._record)
