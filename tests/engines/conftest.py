from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from enginehouse import (
    Driver,
    EngineClient,
    EngineOutput,
    EngineProcess,
    EngineResponse,
    LaunchLine,
    ReplicaState,
    ServedModel,
    UpstreamError,
)
from enginehouse.config.schema import Model
from enginehouse.engines.local import LocalLauncher
from enginehouse.engines.ports import Ports
from enginehouse.engines.supervisor import Supervisor
from enginehouse.testing.engines_real import RealEngine, find_llama_server
from enginehouse_llamacpp import LlamaCppDriver


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting it jumps to the time at which there is something to do."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will ever happen")
        self.now += timeout
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


@pytest.fixture
def in_virtual_time() -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    """Runs a scenario on a clock that jumps: hours pass at once, in the right order."""
    loop = _VirtualLoop()
    yield loop.run_until_complete
    for task in asyncio.all_tasks(loop):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()


class FakeClient:
    """An engine that answers from a table: path -> JSON with status 200, a status, or an exception."""

    def __init__(self, pages: Mapping[str, Any]) -> None:
        self.pages = dict(pages)
        self.asked: list[str] = []

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        self.asked.append(path)
        page = self.pages.get(path, 404)
        if isinstance(page, Exception):
            raise page
        if isinstance(page, int):
            return EngineResponse(page, [], b"{}")
        return EngineResponse(200, [], page if isinstance(page, bytes) else msgspec.json.encode(page))


@pytest.fixture
def fake_client() -> Callable[[Mapping[str, Any]], FakeClient]:
    return FakeClient


class ScriptedDriver(Driver):
    """Healthy as told; whatever is asked of the engine takes ``delay`` seconds."""

    def __init__(self) -> None:
        self.verdict: bool | Exception = True
        self.served: list[ServedModel] | Exception = []
        self.delay = 0.0
        self.sleeps: bool | Exception = False
        self.wakes: bool | Exception = False
        self.asked: list[str] = []
        self.health_checks: list[float] = []
        self.discoveries: list[float] = []

    async def healthy(self, engine: EngineClient) -> bool:
        self.health_checks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.delay)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    async def sleep(self, engine: EngineClient) -> bool:
        return await self._answer("sleep", self.sleeps)

    async def wake(self, engine: EngineClient) -> bool:
        return await self._answer("wake", self.wakes)

    async def _answer(self, question: str, answer: bool | Exception) -> bool:
        self.asked.append(question)
        await asyncio.sleep(self.delay)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def models(self, engine: EngineClient) -> list[ServedModel]:
        self.discoveries.append(asyncio.get_running_loop().time())
        if isinstance(self.served, Exception):
            raise self.served
        return self.served


@pytest.fixture
def driver() -> ScriptedDriver:
    return ScriptedDriver()


class FakeProcess:
    """Goes when told to; stopping it takes ``stop_s`` seconds, and a little longer than its end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stops: list[float] = []
        self.stop_s = 0.0
        self.bytes: int | Exception | None = 1000

    @property
    def handle(self) -> Mapping[str, Any]:
        return {"address": self.address}

    async def memory(self) -> int | None:
        if isinstance(self.bytes, Exception):
            raise self.bytes
        return self.bytes

    async def exited(self) -> int:
        return await asyncio.shield(self.end)

    async def stop(self, timeout: float) -> None:
        self.stops.append(timeout)
        await asyncio.sleep(self.stop_s)
        if not self.end.done():
            self.end.set_result(0)
        await asyncio.sleep(0.1)


class FakeLauncher:
    """``running`` is what an earlier gateway left, by address."""

    def __init__(self) -> None:
        self.running: dict[str, FakeProcess] = {}
        self.lines: list[LaunchLine] = []
        self.launched: list[FakeProcess] = []
        self.prints = b""
        self.delay = 0.0

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        await asyncio.sleep(self.delay)
        output.write(self.prints)
        self.lines.append(line)
        self.launched.append(FakeProcess(f"http://127.0.0.1:{line.port}"))
        return self.launched[-1]

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        return self.running.get(handle["address"])


@pytest.fixture
def fake_launcher() -> FakeLauncher:
    return FakeLauncher()


class HttpxClient:
    """The least there is to talk to a real engine."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        try:
            async with httpx.AsyncClient(base_url=self._address, trust_env=False) as client:
                response = await client.request(method, path, content=body)
        except httpx.HTTPError as error:
            raise UpstreamError(f"The engine cannot be reached: {error!r}") from error
        return EngineResponse(response.status_code, response.headers.raw, response.content)


@pytest.fixture
def real_engine() -> RealEngine:
    """A real llama-server and a tiny model."""
    engine = find_llama_server()
    if engine is None:
        pytest.skip("no llama-server is installed: run `make engines`")
    return engine


@pytest.fixture
async def llama_server(
    real_engine: RealEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EngineClient]:
    """A running llama-server that calls its model ``tiny`` and gives it a context of 2048 tokens."""
    monkeypatch.setenv("PATH", f"{real_engine.program.parent}{os.pathsep}{os.environ['PATH']}")
    model = Model(driver="llamacpp", path=str(real_engine.model), args=["-t", "1", "--no-warmup"], context_length=2048)
    states: list[ReplicaState] = []
    supervisor = Supervisor(
        "tiny",
        "tiny",
        model,
        driver=LlamaCppDriver(),
        launcher=LocalLauncher(tmp_path),
        ports=Ports(),
        connect=HttpxClient,
        on_state=states.append,
    )
    await supervisor.start()
    assert supervisor.address is not None
    yield HttpxClient(supervisor.address)
    await supervisor.stop()
    assert states == [ReplicaState.STARTING, ReplicaState.READY, ReplicaState.STOPPING, ReplicaState.STOPPED]


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A named pipe: who opens it for writing is known to run until reading it comes to its end."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path
