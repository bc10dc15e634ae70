from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest

from enginehouse import Launcher
from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, LaunchLine
from enginehouse_kit.testing import check_launcher


class FakeProcess(EngineProcess):
    """An engine that does what its launch line asks for, without a process."""

    address = "http://127.0.0.1:4711"

    def __init__(self, status: int | None) -> None:
        self.handle = {"id": 1}
        self.status = status
        self._end = asyncio.Event()
        if status is not None:
            self._end.set()

    async def exited(self) -> Exit:
        await self._end.wait()
        return Exit(status=self.status)

    async def memory(self) -> int | None:
        return None

    async def stop(self, timeout: float) -> None:
        self._end.set()


class Fake(Launcher):
    running: FakeProcess | None = None
    process = FakeProcess

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        if "no/such" in line.command[0]:
            raise LoadFailed("there is no such program")
        short = "SystemExit(3)" in line.command[-1]
        if short:
            output.write(f"printed yes {line.environment_on(os.environ).get('LAUNCHER_CHECK_SECRET')}".encode())
        Fake.running = self.process(3 if short else None)
        return Fake.running

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        found = Fake.running
        return found if handle and found and not found._end.is_set() else None


class RaisesAnything(Fake):
    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        raise OSError("no such program")


class Mute(Fake):
    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        return await super().launch(name, line, _Nowhere())


class _Nowhere:
    followed = False

    def write(self, data: bytes) -> None: ...


class PassesSecrets(Fake):
    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        output.write(os.environ.get("LAUNCHER_CHECK_SECRET", "").encode())
        return await super().launch(name, line, output)


class Forgets(Fake):
    async def adopt(self, *_: Any) -> EngineProcess | None:
        return None


class FindsTheDead(Fake):
    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        return Fake.running if handle else None


class Invents(Fake):
    async def adopt(self, *_: Any) -> EngineProcess | None:
        return FakeProcess(None)


class NoAddress(Fake):
    class process(FakeProcess):
        address = "127.0.0.1:4711"


class Unstoppable(Fake):
    class process(FakeProcess):
        async def stop(self, timeout: float) -> None: ...


class WrongStatus(Fake):
    class process(FakeProcess):
        async def exited(self) -> Exit:
            await super().exited()
            return Exit(status=0)


class SaysLost(Fake):
    class process(FakeProcess):
        async def exited(self) -> Exit:
            return Exit(status=(await super().exited()).status, lost=True)


class OldExit(Fake):
    class process(FakeProcess):
        async def exited(self) -> Any:
            return (await super().exited()).status


class PlacesNothing(Fake):
    async def place(self, *_: Any) -> Any:
        return 4711


@pytest.mark.parametrize(
    ("broken", "error", "rule"),
    [
        (RaisesAnything, OSError, "no such program"),
        (Mute, AssertionError, "output must get all that the program prints"),
        (PassesSecrets, AssertionError, "must not inherit the variables in LaunchLine.withheld"),
        (Forgets, AssertionError, "adopt must find an engine that runs"),
        (FindsTheDead, AssertionError, "adopt must return None for an engine that has stopped"),
        (Invents, AssertionError, "adopt must return None for an engine that does not run"),
        (NoAddress, AssertionError, "address must be a URL"),
        (Unstoppable, AssertionError, "exited must return within 0.2 seconds"),
        (WrongStatus, AssertionError, "exited must return the exit status 3 or None, got Exit.status=0"),
        (SaysLost, AssertionError, "a program that ends by itself is not lost"),
        (OldExit, AssertionError, "exited must return an Exit, got 3"),
        (PlacesNothing, AssertionError, "place must return a Place or None, got 4711"),
    ],
)
def test_a_launcher_that_breaks_a_rule_is_caught(broken: type[Launcher], error: type[Exception], rule: str) -> None:
    with pytest.raises(error, match=rule):
        check_launcher(broken, timeout=0.2)


def test_a_launcher_that_keeps_the_rules_passes() -> None:
    check_launcher(Fake)
