"""The ``local`` launcher: each engine is a process group on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import msgspec

from enginehouse import Launcher
from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, Gpu, LaunchLine
from enginehouse_local.log_file import LogFile
from enginehouse_local.nvml import Nvml
from enginehouse_local.processes import (
    PortWatch,
    bytes_moved_by,
    died_in_this_era,
    ended,
    group_with,
    groups_with,
    identity,
    is_marked,
    kill_group,
    may_end,
    members,
    memory_of,
    processor_seconds_of,
    signal_group,
)

_log = logging.getLogger(__name__)

_LOOK = "import importlib.util, sys; sys.exit(3 if importlib.util.find_spec(sys.argv[1]) is None else 0)"
_NOT_THERE = 3
_TIMEOUT_S = 5.0

ENGINE = "ENGINEHOUSE_ENGINE"
"""The environment variable that identifies an engine: it holds the path of the engine's log."""


class _Handle(msgspec.Struct):
    """Finds an engine again. ``identity`` is that of the process ``pid``, which leads its process group."""

    pid: int
    identity: str
    log: str


class LocalLauncher(Launcher):
    """Starts each engine in a process group of its own, with an empty standard input.

    Engines print into files in the folder ``logs``, so they survive the gateway. The path of the file is in the
    engine's environment. An engine whose gateway died before recording it is found by that variable.
    """

    reads_gpus = True

    def __init__(self) -> None:
        self._logs = Path()
        self._nvml = Nvml()

    def gpus(self) -> Sequence[Gpu]:
        """Those of NVIDIA, if ``nvidia-ml-py`` is installed."""
        return self._nvml.read()

    async def prepare(self, logs: Path) -> None:
        self._logs = logs

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        return await asyncio.to_thread(_why_not, line, files)

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> LocalProcess:
        """Start an engine. Raises ``LoadFailed`` if its command cannot be run."""
        log = self._open_log(name, output)
        try:
            process = _start(line, log)  # no await in between: a cancellation must not lose the process
        except OSError as error:
            log.close()
            raise LoadFailed(f"Model '{name}' did not start: '{line.command[0]}' cannot be run: {error}") from None
        return LocalProcess(process.pid, line, log, output, process)

    def _open_log(self, name: str, output: EngineOutput) -> LogFile:
        """A log in the folder ``logs`` or, if that cannot be written, in the folder for temporary files."""
        path = self._logs / _file_name(name)
        try:
            return LogFile.writable(path, output)
        except OSError as error:
            reason = f"{path} cannot be written: {error.strerror}"
        try:
            descriptor, fallback = tempfile.mkstemp(prefix="enginehouse-", suffix=".log")
            os.close(descriptor)
            log = LogFile.writable(Path(fallback), output)
        except OSError as error:
            raise LoadFailed(f"Model '{name}' did not start: {reason}, nor can a temporary file: {error}") from None
        _log.warning("The output of %s goes to %s: %s", name, fallback, reason)
        return log

    async def marks(self, variable: str) -> Mapping[int, str]:
        return await asyncio.to_thread(groups_with, variable)

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> LocalProcess | None:
        """Take over an engine that still runs. If it has exited, kill the processes that it left behind."""
        try:
            known = msgspec.convert(handle, _Handle) if handle else await self._find_unrecorded(name)
        except msgspec.ValidationError:
            return None
        if known is None:
            return None
        runs = await asyncio.to_thread(_runs, known, self._logs / known.log)
        if runs is None:
            _log.warning("Process %d, which is recorded as %s, is none of this gateway's engines", known.pid, name)
        elif runs:
            return LocalProcess(known.pid, line, LogFile(self._logs / known.log, output, fresh=False), output)
        elif died_in_this_era(known.identity):
            await kill_group(known.pid)
        return None

    async def _find_unrecorded(self, name: str) -> _Handle | None:
        """Find an engine whose gateway died before recording its handle."""
        log = self._logs / _file_name(name)
        group = await asyncio.to_thread(group_with, ENGINE, str(log))
        if group is None:
            return None
        if (known := identity(group)) is None:
            await kill_group(group)
            return None
        return _Handle(group, known, log.name)


class LocalProcess(EngineProcess):
    """An engine on this machine with its child processes. ``child`` is ``None`` for an adopted engine.

    Processes that leave the process group are out of reach; stopping them needs a ``stop_command``.
    """

    def __init__(
        self, pid: int, line: LaunchLine, log: LogFile, output: EngineOutput, child: Popen[bytes] | None = None
    ) -> None:
        self.pid = pid
        self.address = f"http://{line.bind}:{line.port}"
        self.handle = {"pid": pid, "identity": identity(pid) or "", "log": str(log.path)}
        self._line = line
        self._log = log
        self._output = output
        self._child = child
        self._asked_to_stop = False
        self._following = asyncio.create_task(log.follow())
        self._end = asyncio.create_task(self._wait_and_clean_up())

    async def listening(self) -> None:
        """Wait until the engine takes connections."""
        watch = PortWatch(self._line.bind, self._line.port)
        self._log.on_print = watch.look_now  # the line may tell that the engine is ready
        try:
            await watch.found
        finally:
            self._log.on_print = None

    async def exited(self) -> Exit:
        """Wait until the whole process group has ended. The status of an adopted engine is unknown."""
        return Exit(status=await asyncio.shield(self._end))

    async def memory(self) -> int | None:
        """The bytes of main memory that the group takes now."""
        return await asyncio.to_thread(memory_of, self.pid)

    async def bytes_moved(self) -> int | None:
        """What the group has read and written so far, and holds in memory: a mapped file is read without a call."""
        return await asyncio.to_thread(bytes_moved_by, self.pid)

    async def processor_seconds(self) -> float | None:
        return await asyncio.to_thread(processor_seconds_of, self.pid)

    async def processes(self) -> Sequence[int]:
        return await asyncio.to_thread(members, self.pid)

    async def stop(self, timeout: float) -> None:
        """Ask the engine to stop, and kill the whole group after ``timeout`` seconds."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ask_to_stop(), timeout)
        self._signal(signal.SIGKILL)
        await asyncio.shield(self._end)

    async def _ask_to_stop(self) -> None:
        if not self._asked_to_stop:  # many engines take a second signal for "at once"
            self._asked_to_stop = True
            if self._line.stop_command:
                await self._run_stop_command()
            else:
                self._signal(signal.SIGTERM)
        await asyncio.shield(self._end)

    async def _run_stop_command(self) -> None:
        command = [part.replace("${pid}", str(self.pid)) for part in self._line.stop_command]
        try:
            stopper = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                env=self._line.environment_on(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            self._stop_command_failed(f"cannot be run: {error}")
            return
        try:
            status = await stopper.wait()
        except asyncio.CancelledError:
            signal_group(stopper.pid, signal.SIGKILL)
            await stopper.wait()
            raise
        if status:
            self._stop_command_failed(f"failed with status {status}")

    def _stop_command_failed(self, how: str) -> None:
        self._output.write(f"stop command '{self._line.stop_command[0]}' {how}\n".encode())
        self._signal(signal.SIGTERM)

    async def _wait_and_clean_up(self) -> int | None:
        """Wait until the engine has exited, then kill the processes that it left behind."""
        await ended(self.pid)
        status = self._child.wait() if self._child else None
        await kill_group(self.pid)
        self._following.cancel()
        self._log.close()
        return status

    def _signal(self, number: signal.Signals) -> None:
        if not self._end.done():  # after that, the number may belong to another group
            signal_group(self.pid, number)


def _start(line: LaunchLine, log: LogFile) -> Popen[bytes]:
    environment = {**line.environment_on(os.environ), ENGINE: str(log.path)}
    output = log.descriptor
    return Popen(line.command, stdin=DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True)


def _runs(known: _Handle, log: Path) -> bool | None:
    """Whether a recorded engine still runs; ``None`` if its number is that of something else."""
    if not may_end(known.pid):
        return None
    now, of_group = identity(known.pid), members(known.pid)
    if now == known.identity:
        return True if known.pid in of_group and is_marked(known.pid, ENGINE, log) else None
    return False if now is None and all(is_marked(pid, ENGINE, log) for pid in of_group) else None


def _why_not(line: LaunchLine, files: Sequence[str]) -> str:
    if missing := missing_program(line.command, line.environment_on(os.environ)):
        return missing
    file = next((file for file in files if not os.path.exists(file)), "")
    return f"there is no file {file}" if file else ""


def missing_program(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Name the program that ``command`` lacks if it is run with ``environ``; empty if it is there.

    Of ``python -m MODULE``, the module too.
    """
    name = command[0] if command else ""
    program = shutil.which(name, path=environ.get("PATH"))
    if program is None:
        return f"there is no program '{name}' on the PATH"
    if len(command) > 2 and command[1] == "-m" and Path(program).name.startswith("python"):
        package = command[2].partition(".")[0]
        if not _has_package(program, package, environ.get("PYTHONPATH", "")):
            return f"'{command[0]}' has no package '{package}'"
    return ""


_found: set[tuple[str, str, str]] = set()
"""Where interpreters have found packages: what was there is not looked for before each launch."""


def _has_package(python: str, package: str, python_path: str) -> bool:
    """Whether this interpreter finds ``package``. One that does not say counts as having it."""
    asked = (python, package, python_path)
    if asked in _found or (python == sys.executable and find_spec(package) is not None):
        return True
    environ = {**os.environ, "PYTHONPATH": python_path}
    try:  # with -c, as with -m, it finds the modules of the working directory, which the gateway's own path may lack
        looked = subprocess.run([python, "-c", _LOOK, package], env=environ, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return True
    if looked.returncode == 0:
        _found.add(asked)
    return looked.returncode != _NOT_THERE


def _file_name(name: str) -> str:
    """A file name for an engine's name: readable, and different for different names."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:80]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.log"
