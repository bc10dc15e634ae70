"""Launchers: where a managed engine's process lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

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


class EngineProcess(Protocol):
    """A launched engine."""

    @property
    def address(self) -> str:
        """Where the engine listens: ``http://127.0.0.1:41234``."""

    async def exited(self) -> int:
        """Wait until the engine has gone by itself or was stopped, and nothing of it is left; its exit status.

        A negative status is the number of the signal that ended it. All of its output was handed over by then.
        """

    async def stop(self, timeout: float) -> None:
        """Ask the engine to stop, wait ``timeout`` seconds, then make it. Leaves nothing behind."""


class Launcher(Protocol):
    """Starts engines somewhere: here, in Ray, in Kubernetes."""

    async def launch(self, name: str, line: LaunchLine, output: Callable[[bytes], None]) -> EngineProcess:
        """Start the engine ``name``, handing to ``output`` whatever it prints, in pieces of any size.

        Raises ``LoadFailed`` if it cannot be started. Cancelled when that takes too long.
        """
