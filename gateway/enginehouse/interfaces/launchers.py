"""Launchers: start engine processes, on this machine or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec


class LaunchLine(msgspec.Struct, frozen=True, kw_only=True):
    """How to start and how to stop one engine."""

    command: Sequence[str]
    """The program and its arguments. No shell is involved."""
    environment: Mapping[str, str] = {}
    """Variables to add to the environment of the machine or container where the engine runs."""
    withheld: Collection[str] = frozenset()
    """Variables of the gateway's own environment that the engine must not get: they hold secrets of the gateway."""
    port: int
    """The port that the engine will listen on."""
    stop_command: Sequence[str] = ()
    """The command that replaces the stop signal; empty for none. The launcher replaces ``${pid}`` by the process id."""

    def environment_on(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the engine and of ``stop_command``, if a process would inherit ``environ``."""
        inherited = {name: value for name, value in environ.items() if name not in self.withheld}
        return {**inherited, **self.environment}


class EngineOutput(Protocol):
    """Receives the output of an engine."""

    @property
    def followed(self) -> bool:
        """Whether a reader waits for more output, so that a launcher should poll often."""

    def write(self, data: bytes) -> None:
        """Add a piece of output of any size. Never blocks."""


class EngineProcess(ABC):
    """A launched engine."""

    address: str
    """Where the engine listens: ``http://127.0.0.1:41234``."""
    ends_at_will: bool = False
    """Whether its exit is never a failure: a server that runs elsewhere may unload a model at any time."""
    handle: Mapping[str, Any]
    """The facts by which ``Launcher.adopt`` finds the engine again. JSON-compatible and without secrets."""

    async def listening(self) -> None:
        """Return when the engine takes connections at ``address``, or at once if only a request could tell.

        From then on, the gateway asks for the engine's health.
        """

    @abstractmethod
    async def exited(self) -> int | None:
        """Wait until the engine has exited, for any reason, and return its exit status.

        When this returns, no process of the engine is left, and the launcher has written all of its output. A negative
        status is the number of the signal that ended the engine; ``None`` if the status is unknown.
        """

    @abstractmethod
    async def memory(self) -> int | None:
        """Return the bytes of main memory that the engine and its child processes use now; ``None`` if unknown."""

    async def bytes_moved(self) -> int | None:
        """Return the bytes that the engine has read and written so far, and those it holds; ``None`` if unknown.

        A change of a mebibyte shows that a starting engine makes progress.
        """
        return None

    async def processes(self) -> Collection[int]:
        """Return the ids of the engine's processes on this machine. The gateway finds their memory on GPUs by them."""
        return ()

    @abstractmethod
    async def stop(self, timeout: float) -> None:
        """Ask the engine to stop, and kill it after ``timeout`` seconds. No process is left when this returns."""


class Launcher(ABC):
    """Starts engines on this machine, in Ray, in Kubernetes, or elsewhere. Every host has its own launcher."""

    def prepare(self, logs: Path) -> None:
        """Called once, before anything else. ``logs`` is an existing folder for output; it outlives the gateway."""

    @abstractmethod
    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start the engine of the backend ``name``, and write its output to ``output``.

        Return once the process runs; the gateway waits until it is healthy. Raise ``LoadFailed`` if it cannot start.
        The gateway cancels this call after the model's ``start_timeout``, or after ``start_silence`` without output.
        """

    async def marks(self, variable: str) -> Mapping[int, str]:
        """Return the values of the environment variable in processes here that have it, by process id.

        The gateway asks only if its records are lost. It then calls ``adopt`` for its own engines, without a handle. By
        default, there are none.
        """
        return {}

    @abstractmethod
    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        """Find an engine that an earlier gateway launched; ``None`` if it does not run.

        ``handle`` is its ``EngineProcess.handle``, or empty if that gateway died during ``launch``; the engine may then
        run or not. ``line`` is the current launch line, without a command if the engine is no longer configured.
        """
