"""Launchers: where a managed engine's process lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class EngineProcess(Protocol):
    """A launched engine."""

    @property
    def address(self) -> str:
        """Where the engine listens: ``http://127.0.0.1:41234``."""

    async def exited(self) -> int:
        """Wait until the engine has gone by itself or was stopped; its exit status."""

    async def stop(self, timeout: float) -> None:
        """Ask the engine to stop, wait ``timeout`` seconds, then make it. Leaves nothing behind."""

    def output(self) -> Sequence[str]:
        """The last lines that the engine printed, oldest first."""


class Launcher(Protocol):
    """Starts engines somewhere: here, in Ray, in Kubernetes."""

    async def launch(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], port: int
    ) -> EngineProcess:
        """Start ``command``, which will listen on ``port``. Raises ``LoadFailed`` if it cannot be started."""
