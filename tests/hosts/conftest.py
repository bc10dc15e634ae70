"""Real gateways that launch simulated engines."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from enginehouse.testing.gateway import RunningGateway

MARK = "STARTED_BY_TEST"
"""An environment variable that gateways hand on to their engines, so that these are found wherever they end up."""


class House:
    """A gateway as its clients and operators see it."""

    def __init__(self, gateway: RunningGateway, pool: ThreadPoolExecutor, key: str, mark: str) -> None:
        self.gateway = gateway
        self._pool = pool
        self._mark = mark
        self.http = httpx.Client(base_url=gateway.url, headers={"x-api-key": key}, trust_env=False, timeout=30)

    def ask(self, model: str, key: str = "", **more: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, **more}
        return self.http.post("/v1/chat/completions", json=body, headers={"x-api-key": key} if key else None)

    def asking(self, model: str, key: str = "", **more: Any) -> Future[httpx.Response]:
        """Ask meanwhile."""
        return self._pool.submit(self.ask, model, key, **more)

    def operate(self, path: str) -> httpx.Response:
        return self.http.post(path)

    def running(self) -> dict[str, str]:
        """The engines that run, with their states."""
        return {each["backend"]: each["state"] for each in self.http.get("/running").json()["running"]}

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/api/requests").json()["requests"]
        return found

    def until_running(self, **engines: str) -> None:
        """Wait until these engines, and no others, are in these states."""
        self.gateway.until(lambda _: self.running() == engines)

    def until_waiting(self, **phases: str) -> None:
        """Wait until there is a request in the given phase for each model named."""
        self.gateway.until(
            lambda _: phases.items() <= {each["model"]: each["phase"] for each in self.requests()}.items()
        )

    def until_asked(self, count: int) -> None:
        """Wait until there are so many live requests."""
        self.gateway.until(lambda status: status["requests"] == count)

    def loads(self, backend: str) -> int:
        """How often an engine was started."""
        return self.history().count(f"{backend} starting")

    def history(self) -> list[str]:
        """What became of engines so far: ``["a starting", "a ready", "a stopping", ...]``."""
        return [" ".join(change) for change in re.findall(r"supervisor: (\S+) is (\w+)", self.gateway.log)]

    def engines(self) -> dict[str, int]:
        """The process of each engine, by its model, whoever's child it is."""
        return {command[command.index("--model") + 1]: pid for pid, command in started_by(self._mark).items()}

    def gauge(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.http.get("/metrics").text, re.MULTILINE)
        return sum(map(float, lines))


def started_by(mark: str) -> dict[int, list[str]]:
    """The engines that gateways of a test have started and that still run, with their command lines."""
    found = {}
    for process in psutil.process_iter(["environ", "cmdline"]):
        environment, command = process.info["environ"] or {}, process.info["cmdline"] or []
        if environment.get(MARK) == mark and "--model" in command:
            found[process.pid] = command
    return found


Open = Callable[..., House]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Open]:
    """Open gateways: ``house('[models.a] ...')``. When they have stopped, none of their engines must be left."""
    mark = str(tmp_path)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=32))

        def open_house(config: str | None = None, key: str = "", **env: str) -> House:
            home = House(stack.enter_context(RunningGateway(config, {MARK: mark, **env}, key=key)), pool, key, mark)
            stack.callback(home.http.close)
            return home

        yield open_house
    left = started_by(mark)
    for pid in left:
        psutil.Process(pid).kill()
    assert not left, "the gateways left engines behind"


@pytest.fixture(scope="session")
def sim() -> Callable[..., str]:
    """The table of a simulated model that takes ``delay`` to start: ``sim("a", "1s", ttl='"10m"')``."""

    def table(name: str, delay: str = "0", ttft: str = "1ms", **settings: str) -> str:
        flags = ["--ttft", ttft, "--tpot", "1ms", "--start-delay", delay]
        return f'[models.{name}]\ndriver = "sim"\nargs = {flags}\n' + _lines(settings)

    return table


class Stage:
    """Engines that load when they are told to, and may find too little memory for that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sim(self, name: str, ttft: str = "1ms", **settings: str) -> str:
        """The table of such a model."""
        script = Path(__file__).with_name("staged_engine.py")
        start = shlex.join([sys.executable, "-S", str(script), str(self._folder)])
        flags = "--model ${model} --port ${port} --tpot 1ms --ttft " + ttft
        return f'[models.{name}]\ndriver = "sim"\ncommand = """{start} {flags}"""\n' + _lines(settings)

    def open(self) -> None:
        """Let engines load from now on."""
        (self._folder / "open").touch()

    def limit(self, room: int) -> None:
        """There is memory for so many engines."""
        (self._folder / "room").write_text(str(room))


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
