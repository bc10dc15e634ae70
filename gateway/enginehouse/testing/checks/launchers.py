"""The conformance check of launchers: launches short programs, stops them and finds them again."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec

from enginehouse.domain.errors import LoadFailed
from enginehouse.interfaces.launchers import EngineProcess, Launcher, LaunchLine
from enginehouse.testing.expect import expect

T = TypeVar("T")

_VARIABLE = "LAUNCHER_CHECK"
_SECRET = "LAUNCHER_CHECK_SECRET"
_PRINTS = f"""
import os
print('printed', os.environ['{_VARIABLE}'], os.environ.get('{_SECRET}'), flush=True)
raise SystemExit(3)
"""
_STAYS = "import threading; print('started', flush=True); threading.Event().wait()"


def check_launcher(
    factory: Callable[[], Launcher], python: Sequence[str] = (sys.executable,), timeout: float = 60.0
) -> None:
    """Launch programs with a launcher and check the rules of its interface. Call it in a synchronous test.

    - A program that does not exist raises ``LoadFailed`` or exits at once.
    - It gets the variables of ``environment``, and none of ``withheld``.
    - ``exited`` returns after the end, with all output written; the status is right, or ``None``.
    - ``stop`` ends a running program; ``memory`` is a number of bytes, or ``None``.
    - ``adopt`` finds a running program by its ``handle``, and nothing after its end or for an empty handle.

    ``python``: the interpreter where the launcher starts programs. ``timeout``: seconds for each step.
    """
    with TemporaryDirectory() as folder:
        asyncio.run(_Check(factory, python, timeout, Path(folder)).run())


class _Check:
    def __init__(self, factory: Callable[[], Launcher], python: Sequence[str], timeout: float, folder: Path) -> None:
        self._factory = factory
        self._python = python
        self._timeout = timeout
        self._folder = folder

    async def run(self) -> None:
        await self._missing_program()
        await self._end_of_a_program()
        await self._stop_and_adoption()

    async def _missing_program(self) -> None:
        line = LaunchLine(command=["/no/such/program"], port=_free_port())
        try:
            process = await self._soon("launch", self._launcher().launch("missing", line, _Output()))
        except LoadFailed:
            return
        status = await self._soon("exited", process.exited())
        expect(status != 0, "a program that does not exist must raise LoadFailed or exit with another status than 0")

    async def _end_of_a_program(self) -> None:
        output, line = _Output(), self._line(_PRINTS)
        os.environ[_SECRET] = "withheld"
        try:
            process = await self._soon("launch", self._launcher().launch("short", line, output))
        finally:
            del os.environ[_SECRET]
        status = await self._soon("exited", process.exited())
        expect(status in (3, None), f"exited must return the exit status 3 or None, got {status!r}")
        printed = b"printed yes" in output.data
        expect(printed, f"output must get all that the program prints before exited returns, got {output.data!r}")
        expect(b"withheld" not in output.data, "a program must not inherit the variables in LaunchLine.withheld")
        expect(await self._soon("exited", process.exited()) == status, "exited must return the same status again")
        await self._soon("stop", process.stop(0.0))

    async def _stop_and_adoption(self) -> None:
        launcher, line, output = self._launcher(), self._line(_STAYS), _Output()
        nothing = await self._soon("adopt", launcher.adopt("stays", line, {}, output))
        expect(nothing is None, f"adopt must return None for an engine that does not run, got {nothing!r}")
        process = await self._soon("launch", launcher.launch("stays", line, output))
        try:
            self._check_process(process)
            memory: Any = await self._soon("memory", process.memory())
            expect(memory is None or isinstance(memory, int), f"memory must return bytes or None, got {memory!r}")
            handle = msgspec.json.decode(msgspec.json.encode(process.handle))
            found = await self._soon("adopt", self._launcher().adopt("stays", line, handle, _Output()))
            expect(found is not None, "adopt must find an engine that runs, by its handle")
            assert found is not None
            expect(found.address == process.address, f"adopt must find the address {process.address!r}")
        finally:
            await self._soon("stop", process.stop(5.0))
        await self._soon("exited", process.exited())
        gone = await self._soon("adopt", self._launcher().adopt("stays", line, handle, _Output()))
        expect(gone is None, f"adopt must return None for an engine that has stopped, got {gone!r}")

    def _check_process(self, process: EngineProcess) -> None:
        expect(isinstance(process, EngineProcess), f"launch must return an EngineProcess, got {process!r}")
        address: Any = process.address
        expect(
            isinstance(address, str) and address.startswith(("http://", "https://")),
            f"address must be a URL, got {address!r}",
        )

    def _launcher(self) -> Launcher:
        launcher = self._factory()
        launcher.prepare(self._folder)
        return launcher

    def _line(self, program: str) -> LaunchLine:
        command = [*self._python, "-c", program]
        environment, withheld = {_VARIABLE: "yes"}, frozenset({_SECRET})
        return LaunchLine(command=command, environment=environment, withheld=withheld, port=_free_port())

    async def _soon(self, method: str, work: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(work, self._timeout)
        except asyncio.TimeoutError:
            raise AssertionError(f"{method} must return within {self._timeout:g} seconds") from None


class _Output:
    """Receives what a program prints."""

    followed = True

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
