"""The bundled launcher: engines as process groups on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import msgspec

from enginehouse.config.environment import ENGINE
from enginehouse.domain.errors import LoadFailed
from enginehouse.engines.log_file import LogFile
from enginehouse.engines.ports import LOOPBACK
from enginehouse.engines.processes import (
    died_in_this_era,
    ended,
    group_with,
    identity,
    kill_group,
    memory_of,
    signal_group,
)
from enginehouse.interfaces.launchers import EngineOutput, LaunchLine


class _Handle(msgspec.Struct):
    """Where an engine is found again. ``identity`` is of the process ``pid``, whose number is its group's as well."""

    pid: int
    identity: str
    log: str


class LocalLauncher:
    """Starts each engine in a process group of its own, with nothing on its standard input.

    What engines print goes to files in the folder ``logs``, so they live on when the gateway dies. The file's path is
    in the environment of the engine, which is found by that if its gateway died before it could tell anybody.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> LocalProcess:
        """Start an engine. Raises ``LoadFailed`` when its command cannot be run."""
        log = LogFile(self._logs / _file_name(name), output, fresh=True)
        try:
            process = _start(line, log)  # nothing is awaited, so that it cannot get lost on the way
        except OSError as error:
            log.close()
            raise LoadFailed(f"Model '{name}' did not start: '{line.command[0]}' cannot be run: {error}") from None
        return LocalProcess(process.pid, line, log, output, process)

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> LocalProcess | None:
        """Take over an engine that still runs; of one that has gone, what it left behind is killed."""
        try:
            known = msgspec.convert(handle, _Handle) if handle else await self._launched_unnoticed(name)
        except msgspec.ValidationError:
            return None
        if known is None:
            return None
        log = LogFile(self._logs / known.log, output, fresh=False)
        if identity(known.pid) == known.identity:
            return LocalProcess(known.pid, line, log, output)
        log.close()
        if died_in_this_era(known.identity) and identity(known.pid) is None:
            await kill_group(known.pid)
        return None

    async def _launched_unnoticed(self, name: str) -> _Handle | None:
        """Where an engine is found that its gateway had no time to write down."""
        log = self._logs / _file_name(name)
        group = await asyncio.to_thread(group_with, ENGINE, str(log))
        if group is None:
            return None
        if (known := identity(group)) is None:
            await kill_group(group)
            return None
        return _Handle(group, known, log.name)


class LocalProcess:
    """An engine that runs on this machine, with whatever it started itself; ``child`` unless it was adopted.

    What left its process group of its own will is out of reach: that wants a ``stop_command``.
    """

    def __init__(
        self, pid: int, line: LaunchLine, log: LogFile, output: EngineOutput, child: Popen[bytes] | None = None
    ) -> None:
        self.pid = pid
        self.address = f"http://{LOOPBACK}:{line.port}"
        self.handle: Mapping[str, Any] = {"pid": pid, "identity": identity(pid) or "", "log": log.path.name}
        self._line = line
        self._log = log
        self._output = output
        self._child = child
        self._asked_to_stop = False
        self._following = asyncio.create_task(log.follow())
        self._end = asyncio.create_task(self._clear_away())

    async def exited(self) -> int | None:
        """Wait until the engine has gone and its whole group with it; its exit status, unless it was adopted."""
        return await asyncio.shield(self._end)

    async def memory(self) -> int | None:
        """The bytes of main memory that the group takes."""
        return await asyncio.to_thread(memory_of, self.pid)

    async def stop(self, timeout: float) -> None:
        """Ask the engine to stop, wait ``timeout`` seconds, then kill the whole group."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ask_to_stop(), timeout)
        self._signal(signal.SIGKILL)
        await self.exited()

    async def _ask_to_stop(self) -> None:
        if not self._asked_to_stop:  # to many engines a second signal means "at once"
            self._asked_to_stop = True
            if self._line.stop_command:
                await self._run_stop_command()
            else:
                self._signal(signal.SIGTERM)
        await self.exited()

    async def _run_stop_command(self) -> None:
        command = [part.replace("${pid}", str(self.pid)) for part in self._line.stop_command]
        environment = {**os.environ, **self._line.environment}
        try:
            stopper = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, env=environment, start_new_session=True
            )
        except OSError as error:
            self._output.write(f"stop command '{command[0]}' cannot be run: {error}\n".encode())
            self._signal(signal.SIGTERM)
            return
        try:
            status = await stopper.wait()
        except asyncio.CancelledError:
            signal_group(stopper.pid, signal.SIGKILL)
            await stopper.wait()
            raise
        if status:
            self._output.write(f"stop command '{command[0]}' failed with status {status}\n".encode())

    async def _clear_away(self) -> int | None:
        """Wait for the engine's end, then end what it leaves behind."""
        await ended(self.pid)
        status = self._child.wait() if self._child else None
        await kill_group(self.pid)
        self._following.cancel()
        self._log.close()
        return status

    def _signal(self, number: signal.Signals) -> None:
        if not self._end.done():  # after that the number may belong to somebody else
            signal_group(self.pid, number)


def _start(line: LaunchLine, log: LogFile) -> Popen[bytes]:
    environment = {**os.environ, **line.environment, ENGINE: str(log.path)}
    output = log.descriptor
    return Popen(line.command, stdin=DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True)


def _file_name(name: str) -> str:
    """A file name for any engine's name: readable, and no two alike."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:80]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.log"
