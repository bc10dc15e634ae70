"""Which gateway starts and stops engines, while one takes over from another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from enginehouse.domain.errors import ShuttingDown
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Exit, Launcher, LaunchLine
from enginehouse.interfaces.places import EngineNeeds, Place


class EngineOwnership:
    """The right of this gateway to start, stop, wake and put to sleep its engines. Each of these is an *act*.

    While it is paused, acts wait. Once it is given up, engines are the successor's: none of them is touched any more.
    """

    def __init__(self) -> None:
        self._held = asyncio.Event()
        self._held.set()
        self._acts = 0
        self._none_acts = asyncio.Event()
        self._none_acts.set()
        self.given_up = False

    @property
    def held(self) -> bool:
        """Whether acts may begin now."""
        return self._held.is_set() and not self.given_up

    @asynccontextmanager
    async def act(self) -> AsyncIterator[None]:
        """One act, in its turn. Raises ``ShuttingDown`` once the engines are another gateway's."""
        await self._held.wait()
        if self.given_up:
            raise ShuttingDown("Another gateway has taken over the engines; send the request again")
        self._acts += 1
        self._none_acts.clear()
        try:
            yield
        finally:
            self._acts -= 1
            if not self._acts:
                self._none_acts.set()

    async def pause(self) -> None:
        """Let no act begin, and return when those in progress have ended."""
        self._held.clear()
        await self._none_acts.wait()

    def resume(self) -> None:
        """Let acts begin again."""
        self._held.set()

    def give_up(self) -> None:
        """Leave the engines to another gateway, for good. Acts that wait end with an error."""
        self.given_up = True
        self._held.set()


class OwnedLauncher(Launcher):
    """A launcher that starts and stops engines only while ``ownership`` is held."""

    def __init__(self, launcher: Launcher, ownership: EngineOwnership) -> None:
        self.Options = launcher.Options
        self.places_gpus = launcher.places_gpus
        self._launcher = launcher
        self._ownership = ownership

    async def prepare(self, logs: Path) -> None:
        await self._launcher.prepare(logs)

    async def place(self, name: str, needs: EngineNeeds, waits: Callable[[str], None]) -> Place | None:
        return await self._launcher.place(name, needs, waits)

    async def release(self, place: Place) -> None:
        await self._launcher.release(place)

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        return await self._launcher.why_not(line, files)

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        async with self._ownership.act():
            return OwnedProcess(await self._launcher.launch(name, line, output), self._ownership)

    async def marks(self, variable: str) -> Mapping[int, str]:
        return await self._launcher.marks(variable)

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        process = await self._launcher.adopt(name, line, handle, output)
        return None if process is None else OwnedProcess(process, self._ownership)


class OwnedProcess(EngineProcess):
    """An engine that runs on if another gateway owns it."""

    def __init__(self, process: EngineProcess, ownership: EngineOwnership) -> None:
        self.address = process.address
        self.ends_at_will = process.ends_at_will
        self.handle = process.handle
        self._process = process
        self._ownership = ownership

    async def listening(self) -> None:
        await self._process.listening()

    async def exited(self) -> Exit:
        return await self._process.exited()

    async def memory(self) -> int | None:
        return await self._process.memory()

    async def bytes_moved(self) -> int | None:
        return await self._process.bytes_moved()

    async def processes(self) -> Collection[int]:
        return await self._process.processes()

    async def stop(self, timeout: float) -> None:
        """Stop the engine. Does nothing once it is another gateway's."""
        try:
            async with self._ownership.act():
                await self._process.stop(timeout)
        except ShuttingDown:
            return
