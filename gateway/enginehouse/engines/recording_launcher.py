"""A launcher that records running engines in the state file."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from enginehouse.engines.gpus.host_gpus import CUDA_VISIBLE_DEVICES
from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.state_file import EngineRecord, StateFile
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Launcher, LaunchLine

_log = logging.getLogger(__name__)


class RecordingLauncher(Launcher):
    """Runs the ``launcher`` of ``host`` and keeps ``state_file`` up to date."""

    def __init__(self, host: str, launcher: Launcher, state_file: StateFile) -> None:
        self._host = host
        self._launcher = launcher
        self._state_file = state_file

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start an engine. It is recorded before and after the launch, because the gateway may die in between."""
        gpus = line.environment.get(CUDA_VISIBLE_DEVICES, "")
        begun = EngineRecord(host=self._host, port=line.port, fingerprint=fingerprint(line), handle={}, gpus=gpus)
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
        """Adopt a recorded engine. Its record is removed if it does not run, or if the launcher fails to adopt it."""
        record = self._state_file.records[name]
        try:
            process = await self._launcher.adopt(name, line, handle, output)
        except (Exception, SystemExit):
            launcher = type(self._launcher)
            text = "The launcher %s.%s of host '%s' failed to take over %s, which may still run"
            _log.exception(text, launcher.__module__, launcher.__qualname__, self._host, name)
            process = None
        if process is None:
            self._state_file.remove(name, record)
            return None
        return self._recorded(process, name, record)

    def _recorded(self, process: EngineProcess, name: str, before: EngineRecord) -> EngineProcess:
        record = msgspec.structs.replace(before, handle=dict(process.handle))
        self._state_file.put(name, record)
        return _RecordedProcess(process, self._state_file, name, record)


class _RecordedProcess(EngineProcess):
    """Removes the record of an engine when it has exited."""

    def __init__(self, process: EngineProcess, state_file: StateFile, name: str, record: EngineRecord) -> None:
        self.address = process.address
        self.handle = process.handle
        self._process = process
        self._state_file = state_file
        self._name = name
        self._record = record

    async def exited(self) -> int | None:
        status = await self._process.exited()
        self._state_file.remove(self._name, self._record)
        return status

    async def memory(self) -> int | None:
        return await self._process.memory()

    async def processes(self) -> Collection[int]:
        return await self._process.processes()

    async def stop(self, timeout: float) -> None:
        await self._process.stop(timeout)
        self._state_file.remove(self._name, self._record)
