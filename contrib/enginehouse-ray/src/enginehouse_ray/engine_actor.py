"""Runs on a node of the cluster: one process of an engine, and what the launcher wants to know of it.

Ray sends this module to the node by value, so it imports nothing but the standard library and Ray, and the
node needs no installation of Enginehouse.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

_MOST = 256 * 1024
"""The most bytes of output that are sent at once, and that a new reader gets of the history."""
_LARGEST_FILE = 64 * 1024**2
_PAUSE_S = 0.05
_DIE_WITH_PARENT = 1
"""``PR_SET_PDEATHSIG`` of ``prctl(2)``: an engine must not outlive its actor, whose resources Ray then gives away."""


class EngineActor:
    """Keeps a place on its node, and then runs a process there. ``owner``: the gateway that it belongs to."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._kept: list[socket.socket] = []

    async def node(self) -> str:
        """Ray's id of the node."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    async def place(self, address: str, first: int, last: int, ports: int) -> list[int]:
        """Keep so many free ports of ``address`` from ``first`` to ``last``. Raises ``OSError`` if there are not."""
        for each in self._kept:
            each.close()
        self._kept = []
        for port in range(first, last + 1):
            taken = socket.socket()
            try:
                taken.bind((address, port))
            except OSError:
                taken.close()
                continue
            self._kept.append(taken)
            if len(self._kept) == ports:
                return [each.getsockname()[1] for each in self._kept]
        raise OSError(f"{address} has no {ports} free ports between {first} and {last}")

    async def belongs_to(self) -> tuple[str, bool]:
        """The gateway that it belongs to, and whether its process runs."""
        return self._owner, self._process is not None and self._process.poll() is None

    async def why_not(self, command: Sequence[str], path: str | None, files: Sequence[str]) -> str:
        """What the node lacks: a program or a file; empty for nothing."""
        return await asyncio.to_thread(_lacking, command[0], path, files)

    async def start(self, command: Sequence[str], environment: Mapping[str, str], withheld: Sequence[str]) -> str:
        """Start the process in a group of its own. Returns why it cannot be; empty if it runs."""
        return self._launch(command, environment, withheld)  # not in a thread: with its end the engine would die

    def _launch(self, command: Sequence[str], environment: Mapping[str, str], withheld: Sequence[str]) -> str:
        inherited = {name: value for name, value in os.environ.items() if name not in withheld}
        log = self._log = tempfile.NamedTemporaryFile(prefix="enginehouse-", suffix=".log")  # noqa: SIM115 - kept open
        for each in self._kept:
            each.close()
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**inherited, **environment},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            return f"'{command[0]}' cannot be run: {error}"
        return ""

    async def news(self, offset: int, patience: float) -> tuple[bytes, int, int | None]:
        """Output from ``offset`` on, where it ends, and the exit status of the process; ``None`` while it runs.

        Returns after ``patience`` seconds at the latest, and as soon as there is news.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            status = None if self._process is None else self._process.poll()
            data, after = self._read(offset)
            if data or status is not None or loop.time() >= end:
                return data, after, status
            await asyncio.sleep(_PAUSE_S)

    def _read(self, offset: int) -> tuple[bytes, int]:
        if self._log is None:
            return b"", offset
        number = self._log.fileno()
        size = os.fstat(number).st_size
        start = max(offset, size - _MOST) if offset <= size else 0
        data = os.pread(number, _MOST, start)
        if start + len(data) >= _LARGEST_FILE:
            os.ftruncate(number, 0)
            return data, 0
        return data, start + len(data)

    async def memory(self) -> int | None:
        """The bytes of main memory that the group takes; ``None`` if that cannot be read."""
        return None if self._process is None else await asyncio.to_thread(_memory_of, self._process.pid)

    async def pid(self) -> int | None:
        """The process id on the node."""
        return None if self._process is None else self._process.pid

    async def stop(self, timeout: float, stop_command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Ask the process to end, and kill its group after ``timeout`` seconds."""
        process = self._process
        if process is None:
            return
        stopper = None
        if process.poll() is None and timeout > 0:
            stopper = self._ask_to_stop(stop_command, environment)
        end = asyncio.get_running_loop().time() + timeout
        while process.poll() is None and asyncio.get_running_loop().time() < end:
            if stopper is not None and stopper.poll():
                stopper = None
                self._signal(signal.SIGTERM)
            await asyncio.sleep(_PAUSE_S)
        self._signal(signal.SIGKILL)
        while process.poll() is None:  # noqa: ASYNC110 - as above
            await asyncio.sleep(_PAUSE_S)

    def _ask_to_stop(
        self, stop_command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | None:
        """Run the stop command, and return it; without one, and if it cannot be run, send the signal."""
        if stop_command and self._process is not None:
            words = [word.replace("${pid}", str(self._process.pid)) for word in stop_command]
            with suppress(OSError):
                return subprocess.Popen(words, stdin=subprocess.DEVNULL, env={**os.environ, **environment})
        self._signal(signal.SIGTERM)
        return None

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._process is not None:
                os.killpg(self._process.pid, number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _lacking(program: str, path: str | None, files: Sequence[str]) -> str:
    if shutil.which(program, path=path) is None:
        return f"there is no program '{program}' on the PATH"
    for file in files:
        if not os.path.exists(os.path.expanduser(file)):
            return f"there is no file {file} (copy it there, or share the folder)"
    return ""


def _memory_of(group: int) -> int:
    total = 0
    for entry in os.scandir("/proc"):
        with suppress(OSError, ValueError):
            if os.getpgid(int(entry.name)) == group:
                with open(f"/proc/{entry.name}/statm") as figures:
                    total += int(figures.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total
