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
    """Variables added to the environment of the place where the engine runs."""
    withheld: Collection[str] = frozenset()
    """Variables of the gateway's own environment that the engine must not get: they hold secrets of the gateway."""
    port: int
    """The port that the engine will listen on."""
    stop_command: Sequence[str] = ()
    """Replaces the stop signal; empty for none. ``${pid}`` stands for the process id, which the launcher fills in."""

    def environment_on(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The engine's whole environment, where a process would inherit ``environ``. Also that of ``stop_command``."""
        inherited = {name: value for name, value in environ.items() if name not in self.withheld}
        return {**inherited, **self.environment}


class EngineOutput(Protocol):
    """Receives what an engine prints."""

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
    """Whether its end is no failure: a server that runs elsewhere may unload a model when it likes."""
    handle: Mapping[str, Any]
    """What ``Launcher.adopt`` needs to find the engine again. JSON-compatible and without secrets."""

    @abstractmethod
    async def exited(self) -> int | None:
        """Wait until the engine has exited, for any reason, and return its exit status.

        No process of the engine is left then, and all of its output has been written. A negative status is the number
        of the signal that ended the engine; ``None`` if the status is not known.
        """

    @abstractmethod
    async def memory(self) -> int | None:
        """The bytes of main memory that the engine and its child processes take now; ``None`` if not known."""

    async def processes(self) -> Collection[int]:
        """The ids of the engine's processes, if it runs on this machine. Its memory on GPUs is found by them."""
        return ()

    @abstractmethod
    async def stop(self, timeout: float) -> None:
        """Ask the engine to stop, and kill it after ``timeout`` seconds. No process is left when this returns."""


class Launcher(ABC):
    """Starts engines somewhere: on this machine, in Ray, in Kubernetes. Every host has a launcher of its own."""

    def prepare(self, logs: Path) -> None:
        """Called once, before anything else. ``logs`` is an existing folder for output; it outlives the gateway."""

    @abstractmethod
    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start the engine of the backend ``name`` and write what it prints to ``output``.

        Returns once the process runs; the gateway waits for its health. Raises ``LoadFailed`` if it cannot be started.
        Cancelled after the model's ``start_timeout``.
        """

    @abstractmethod
    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        """Find an engine that an earlier gateway launched; ``None`` if it does not run.

        ``handle`` is the ``EngineProcess.handle`` of then. It is empty if that gateway died during ``launch``; the
        engine may run or not. ``line`` is the current launch line, without a command if the engine is not configured
        any more.
        """
