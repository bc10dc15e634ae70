"""The bundled launcher: engines as process groups on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from subprocess import DEVNULL

from enginehouse.domain.errors import LoadFailed
from enginehouse.engines.ports import LOOPBACK
from enginehouse.interfaces.launchers import LaunchLine

_LAST_WORDS_S = 2.0
"""How long after an engine's end its output may take to arrive, and what it held to be let go of."""


class LocalLauncher:
    """Starts each engine in a process group of its own, with nothing on its standard input."""

    async def launch(self, name: str, line: LaunchLine, output: Callable[[bytes], None]) -> LocalProcess:
        """Start an engine. Raises ``LoadFailed`` when its command cannot be run."""
        pipe = await _Pipe.open(output)
        try:
            process = await _spawn(line.command, line.environment, pipe.write_end)
        except OSError as error:
            pipe.close()
            raise LoadFailed(f"Model '{name}' did not start: '{line.command[0]}' cannot be run: {error}") from None
        finally:
            os.close(pipe.write_end)
        return LocalProcess(line, process, pipe)


class LocalProcess:
    """An engine that runs on this machine, with whatever it started itself.

    What left its process group of its own will is out of reach: that wants a ``stop_command``.
    """

    def __init__(self, line: LaunchLine, process: asyncio.subprocess.Process, pipe: _Pipe) -> None:
        self._line = line
        self._process = process
        self._pipe = pipe
        self._asked_to_stop = False
        self._end = asyncio.create_task(self._clear_away())

    @property
    def pid(self) -> int:
        """The process's number, which is its group's as well."""
        return self._process.pid

    @property
    def address(self) -> str:
        """Where the engine listens."""
        return f"http://{LOOPBACK}:{self._line.port}"

    async def exited(self) -> int:
        """Wait until the engine has gone and its whole group with it; its exit status."""
        return await asyncio.shield(self._end)

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
        try:
            stopper = await _spawn(command, self._line.environment, DEVNULL)
        except OSError as error:
            self._pipe.output(f"stop command '{command[0]}' cannot be run: {error}\n".encode())
            self._signal(signal.SIGTERM)
            return
        try:
            status = await stopper.wait()
        except asyncio.CancelledError:
            _signal_group(stopper.pid, signal.SIGKILL)
            await stopper.wait()
            raise
        if status:
            self._pipe.output(f"stop command '{command[0]}' failed with status {status}\n".encode())

    async def _clear_away(self) -> int:
        """Wait for the engine's end, then end what it leaves behind."""
        status = await self._process.wait()
        _signal_group(self.pid, signal.SIGKILL)
        await self._pipe.drained(_LAST_WORDS_S)
        self._pipe.close()
        return status

    def _signal(self, number: signal.Signals) -> None:
        if not self._end.done():  # after that the number may belong to somebody else
            _signal_group(self.pid, number)


class _Pipe(asyncio.Protocol):
    """Takes in an engine's output as fast as it comes.

    A pipe of our own, because asyncio ends its wait for a process only when everybody has closed the process's pipes.
    """

    def __init__(self, output: Callable[[bytes], None], write_end: int) -> None:
        self.output = output
        self.write_end = write_end
        self._transport: asyncio.ReadTransport | None = None
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, output: Callable[[bytes], None]) -> _Pipe:
        read_end, write_end = os.pipe()
        pipe = cls(output, write_end)
        pipe._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: pipe, os.fdopen(read_end, "rb"))
        return pipe

    def data_received(self, data: bytes) -> None:
        self.output(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()

    async def drained(self, timeout: float) -> None:
        """Wait until nobody holds the other end any more, ``timeout`` seconds at the most."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._closed.wait(), timeout)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def _spawn(command: Sequence[str], environment: Mapping[str, str], output: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the second where only zombies are left
        os.killpg(group, number)
