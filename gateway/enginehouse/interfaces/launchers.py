"""Launchers: where a managed engine's process lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec


class LaunchLine(msgspec.Struct, frozen=True, kw_only=True):
    """How to start one engine and how to stop it.

    ``environment`` is added to that of the place where the engine runs. ``stop_command`` replaces the stop signal;
    empty for none. It may hold ``${pid}``, which only the launcher knows.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = {}
    port: int
    stop_command: Sequence[str] = ()


class EngineOutput(Protocol):
    """Takes in what an engine prints."""

    @property
    def followed(self) -> bool:
        """Whether somebody waits for more, so that it should come soon."""

    def write(self, data: bytes) -> None:
        """Take a piece, of any size. Never waits."""


class EngineProcess(Protocol):
    """A launched engine."""

    @property
    def address(self) -> str:
        """Where the engine listens: ``http://127.0.0.1:41234``."""

    @property
    def handle(self) -> Mapping[str, Any]:
        """What ``Launcher.adopt`` finds the engine by, JSON-compatible and without secrets."""

    async def exited(self) -> int | None:
        """Wait until the engine has gone by itself or was stopped, and nothing of it is left; its exit status.

        A negative status is the number of the signal that ended it; ``None`` if it cannot be known. All of its output
        was handed over by then.
        """

    async def memory(self) -> int | None:
        """The bytes of main memory that the engine takes now, with all it started; ``None`` if unknown."""

    async def stop(self, timeout: float) -> None:
        """Ask the engine to stop, wait ``timeout`` seconds, then make it. Leaves nothing behind."""


class Launcher(Protocol):
    """Starts engines somewhere: here, in Ray, in Kubernetes."""

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start the engine ``name`` and hand over to ``output`` whatever it prints.

        Raises ``LoadFailed`` if it cannot be started. Cancelled when that takes too long.
        """

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        """Take over an engine that an earlier gateway launched, or ``None`` if it has gone.

        ``handle`` is what its process had; empty, if that gateway died while it launched the engine, of which there may
        be none then. ``line`` is how it would be launched now, and may be without a command.
        """
