"""Launchers: start engine processes, on this machine or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from enginehouse.domain.gpu import Gpu
from enginehouse.interfaces.places import LOOPBACK, EngineNeeds, Place, PlacementOptions


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
    bind: str = LOOPBACK
    """The address that it will listen on."""
    others: Sequence[Sequence[str]] = ()
    """The commands of the engine's processes on the further machines of its place."""
    place: Place | None = None
    """What ``Launcher.place`` has returned; ``None`` if the gateway chose a port of this machine."""
    stop_command: Sequence[str] = ()
    """The command that replaces the stop signal; empty for none. The launcher replaces ``${pid}`` by the process id."""

    def environment_on(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the engine and of ``stop_command``, if a process would inherit ``environ``."""
        inherited = dict(environ)
        for name in self.withheld:
            inherited.pop(name, None)
        return {**inherited, **self.environment}


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine ended."""

    status: int | None = None
    """Its exit status, or the negative number of the signal that ended it; ``None`` if that is unknown."""
    lost: bool = False
    """Whether the place is lost and not the engine's fault, such as a machine that no longer answers."""
    why: str = ""
    """The reason for people, if the launcher knows more than the status tells: ``node gpu-3 is lost``."""


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
    async def exited(self) -> Exit:
        """Wait until the engine has exited or is lost, for any reason, and return how.

        When this returns, no process of the engine is left that could be reached, and the launcher has written all of
        its output.
        """

    @abstractmethod
    async def memory(self) -> int | None:
        """Return the bytes of main memory that the engine and its child processes use now; ``None`` if unknown."""

    async def bytes_moved(self) -> int | None:
        """Return the bytes that the engine has read and written so far, and those it holds; ``None`` if unknown.

        A change of a mebibyte shows that a starting engine makes progress.
        """
        return None

    async def processor_seconds(self) -> float | None:
        """Return the processor time that the engine's processes have taken so far; ``None`` if unknown.

        An engine that answers nothing and takes none hangs.
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

    Options: type[PlacementOptions] = PlacementOptions
    """The options of a place. The gateway decodes them strictly when it reads its configuration."""
    places_gpus: bool = False
    """Whether ``place`` chooses the GPUs. Otherwise the gateway does, among those of ``hosts.*.gpus``."""
    reads_gpus: bool = False
    """Whether ``gpus`` tells anything."""

    async def prepare(self, logs: Path) -> None:
        """Called before everything else, and again after it has raised an exception.

        ``logs`` is an existing folder for output; it outlives the gateway. May wait, but must not block: engines that
        need nothing of this launcher start meanwhile.
        """

    async def no_room(self, needs: EngineNeeds) -> str:
        """Return why no machine could hold an engine with these ``needs`` even if no other engine ran.

        Empty if one can, or if that is unknown. The gateway asks before it stops other engines for this one. If it gets
        a reason, it first waits for the place, while the others keep serving.
        """
        return ""

    async def place(self, name: str, needs: EngineNeeds, waits: Callable[[str], None]) -> Place | None:
        """Find and keep a place for the engine of the backend ``name``, before its launch line is made.

        ``None``, the default, stands for this machine: the gateway then chooses a port. May wait for resources, for as
        long as the gateway does not cancel it, which it does after the model's ``place_timeout``. Call ``waits`` with
        the reason as soon as there is no room, within two seconds. Raise ``LoadFailed`` if there can never be any. What
        was kept must be free after any exception, also a cancellation.
        """
        return None

    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs that engines may use, as they are now; ``()`` if there are none, or if they are unknown.

        Only called with ``reads_gpus``, every few seconds in a thread, and once at the start. May block for some
        milliseconds.
        """
        return ()

    async def release(self, place: Place) -> None:
        """Free a place in which no engine runs: the launch failed, or was abandoned before it began."""

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        """Return why the engine cannot start in ``line.place``, with a remedy; empty if it may.

        ``files``: those that the engine will read there. The gateway asks before it launches an engine in a place of
        this launcher. A launcher that finds no places is asked before other engines are stopped for this one.
        """
        return ""

    @abstractmethod
    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start the engine of the backend ``name``, and write its output to ``output``.

        Return once the process runs; the gateway waits until it is healthy. Raise ``LoadFailed`` if it cannot start;
        the gateway then calls ``release`` for its place.
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
