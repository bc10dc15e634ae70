"""Managed engines in memory: a launcher whose processes start, hang, exit and run out of memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Protocol

from enginehouse import Launcher
from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, LaunchLine
from tests.chaos.engines import Bench, Engine
from tests.chaos.floods import WORDS
from tests.chaos.network import Network

STARTS = (*("ready",) * 4, "slow", "exits", "hangs", "no memory", "cannot launch", "exits soon", "floods")


class LaunchBench(Bench, Protocol):
    """What a launcher works with; ``engine`` makes the server of an engine."""

    network: Network
    processes: dict[str, VirtualProcess]

    def engine(self, name: str) -> Engine: ...


class VirtualProcess(EngineProcess):
    """An engine that runs in memory, at the port of its launch line."""

    def __init__(self, bench: LaunchBench, name: str, port: int, output: EngineOutput, rng: random.Random) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.handle: Mapping[str, Any] = {"name": name}
        self.name = name
        self.place = ("127.0.0.1", port)
        self._bench = bench
        self._output = output
        self._rng = rng
        self._engine: Engine | None = None
        self._gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def begin(self, how: str) -> None:
        """Start in one of the ways of ``STARTS``."""
        self._output.write(f"{self.name} starts\nhalf a line".encode())
        if how == "floods":
            self._output.write(self._rng.choice(WORDS))
        loop = asyncio.get_running_loop()
        soon = self._rng.uniform(0.01, 0.5)
        if how == "exits":
            loop.call_later(soon, self.end, 3, b"error: no such file\n")
        elif how == "no memory":
            loop.call_later(soon, self.end, 1, b"\nggml: cudaMalloc failed: out of memory\n")
        elif how != "hangs":
            loop.call_later(1.5 if how == "slow" else soon, self._listen)
        if how == "exits soon":
            loop.call_later(soon + self._rng.uniform(0, 1), self.end, -9, b"")

    def outlive(self, bench: LaunchBench, output: EngineOutput) -> None:
        """Continue in the event loop of another gateway, which was started after the first one was killed."""
        self._bench, self._output = bench, output
        self._gone = asyncio.get_running_loop().create_future()
        if self._engine is not None or self._rng.random() < 0.8:
            asyncio.get_running_loop().call_later(0.0 if self._engine is not None else 0.3, self._listen)

    def follow(self, output: EngineOutput) -> None:
        """Print to ``output`` from now on."""
        self._output = output

    def _listen(self) -> None:
        if not self._gone.done():
            self._engine = self._bench.engine(self.name)
            self._bench.network.listen(self.name, self.place, self._engine.accept)

    def end(self, status: int, words: bytes = b"") -> None:
        """The process ends, and its connections with it."""
        if self._gone.done():
            return
        self._bench.note(self.name, f"ends with {status}")
        self._output.write(words)
        self._bench.network.unlisten(self.place)
        if self._engine is not None:
            self._engine.crash()
        self._bench.processes.pop(self.name, None)
        self._gone.set_result(status)

    async def exited(self) -> Exit:
        return Exit(status=await asyncio.shield(self._gone))

    async def memory(self) -> int | None:
        return 1 << 30

    async def stop(self, timeout: float) -> None:
        patience = 0.05 if self._bench.calm else self._rng.choice((0.0, 0.02, 0.5, 60.0))
        self._bench.note(self.name, f"is asked to stop, and needs {patience} s of {timeout}")
        await asyncio.wait({self._gone}, timeout=min(patience, timeout))
        self.end(-15 if patience < timeout else -9)


class VirtualLauncher(Launcher):
    """Starts virtual processes, each as the seed says."""

    def __init__(self, bench: LaunchBench, rng: random.Random) -> None:
        self._bench = bench
        self._rng = rng

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        how = "ready" if self._bench.calm else self._rng.choice(STARTS)
        self._bench.note(name, f"is launched and {how}")
        await asyncio.sleep(self._rng.uniform(0, 0.05))
        if how == "cannot launch":
            raise LoadFailed(f"{name} cannot be launched: no such file")
        if name in self._bench.processes:
            self._bench.violated(f"{name} is launched while it runs")
        process = VirtualProcess(self._bench, name, line.port, output, self._rng)
        self._bench.processes[name] = process
        process.begin(how)
        return process

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        process = self._bench.processes.get(name)
        if process is not None:
            process.follow(output)
        return process
