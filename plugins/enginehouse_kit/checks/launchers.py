"""The conformance check of launchers: launches short programs, stops them and finds them again."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from enginehouse import Launcher
from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineNeeds, EngineProcess, Exit, LaunchLine, Place
from enginehouse_kit.expect import expect, within

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

    - ``prepare`` and ``place`` return; ``why_not`` has nothing against a program that can start.
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
        launcher = await self._launcher()
        line = await self._line(launcher, "missing", ["/no/such/program"])
        try:
            process = await within(self._timeout, "launch", launcher.launch("missing", line, _Output()))
        except LoadFailed:
            await self._release(launcher, line)
            return
        how = await self._exit(process)
        expect(how.status != 0, "a program that does not exist must raise LoadFailed or exit with a status but 0")

    async def _end_of_a_program(self) -> None:
        launcher, output = await self._launcher(), _Output()
        line = await self._line(launcher, "short", [*self._python, "-c", _PRINTS])
        why = await within(self._timeout, "why_not", launcher.why_not(line, ()))
        expect(why == "", f"why_not must be empty for a program that can start, got {why!r}")
        os.environ[_SECRET] = "withheld"
        try:
            process = await within(self._timeout, "launch", launcher.launch("short", line, output))
        finally:
            del os.environ[_SECRET]
        how = await self._exit(process)
        expect(how.status in (3, None), f"exited must return the exit status 3 or None, got {how!r}")
        expect(not how.lost, f"a program that ends by itself is not lost, got {how!r}")
        printed = b"printed yes" in output.data
        expect(printed, f"output must get all that the program prints before exited returns, got {output.data!r}")
        expect(b"withheld" not in output.data, "a program must not inherit the variables in LaunchLine.withheld")
        expect(await self._exit(process) == how, "exited must return the same again")
        await within(self._timeout, "stop", process.stop(0.0))

    async def _stop_and_adoption(self) -> None:
        launcher, output = await self._launcher(), _Output()
        bare = LaunchLine(command=[], port=_free_port())
        nothing = await within(self._timeout, "adopt", launcher.adopt("stays", bare, {}, output))
        expect(nothing is None, f"adopt must return None for an engine that does not run, got {nothing!r}")
        line = await self._line(launcher, "stays", [*self._python, "-c", _STAYS])
        process = await within(self._timeout, "launch", launcher.launch("stays", line, output))
        try:
            self._check_process(process)
            memory: Any = await within(self._timeout, "memory", process.memory())
            expect(memory is None or isinstance(memory, int), f"memory must return bytes or None, got {memory!r}")
            handle = msgspec.json.decode(msgspec.json.encode(process.handle))
            found = await within(
                self._timeout, "adopt", (await self._launcher()).adopt("stays", line, handle, _Output())
            )
            expect(found is not None, "adopt must find an engine that runs, by its handle")
            assert found is not None
            expect(found.address == process.address, f"adopt must find the address {process.address!r}")
        finally:
            await within(self._timeout, "stop", process.stop(5.0))
        await self._exit(process)
        gone = await within(self._timeout, "adopt", (await self._launcher()).adopt("stays", line, handle, _Output()))
        expect(gone is None, f"adopt must return None for an engine that has stopped, got {gone!r}")

    def _check_process(self, process: EngineProcess) -> None:
        expect(isinstance(process, EngineProcess), f"launch must return an EngineProcess, got {process!r}")
        address: Any = process.address
        expect(
            isinstance(address, str) and address.startswith(("http://", "https://")),
            f"address must be a URL, got {address!r}",
        )

    async def _launcher(self) -> Launcher:
        launcher = self._factory()
        await within(self._timeout, "prepare", launcher.prepare(self._folder))
        return launcher

    async def _line(self, launcher: Launcher, name: str, command: Sequence[str]) -> LaunchLine:
        """The launch line of ``command`` in the place that ``launcher`` finds."""
        place: Any = await within(self._timeout, "place", launcher.place(name, EngineNeeds(), lambda why: None))
        expect(place is None or isinstance(place, Place), f"place must return a Place or None, got {place!r}")
        found = place or Place(port=_free_port())
        return LaunchLine(
            command=command,
            environment={_VARIABLE: "yes"},
            withheld=frozenset({_SECRET}),
            port=found.port,
            bind=found.bind,
            place=place,
        )

    async def _release(self, launcher: Launcher, line: LaunchLine) -> None:
        if line.place is not None:
            await within(self._timeout, "release", launcher.release(line.place))

    async def _exit(self, process: EngineProcess) -> Exit:
        how: Any = await within(self._timeout, "exited", process.exited())
        expect(isinstance(how, Exit), f"exited must return an Exit, got {how!r}")
        assert isinstance(how, Exit)
        return how


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
